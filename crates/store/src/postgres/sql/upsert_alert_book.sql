-- Writes which alerts webhooks were told of, if what is there has this version; 0: nothing is there. Answers the new one.
insert into tidemill.alert_book as b (version, book)
select 1, $2::text
where $1::int8 = 0 or exists (select from tidemill.alert_book)
on conflict (is_it) do update
set version = b.version + 1, book = excluded.book
where b.version = $1::int8
returning version;
