-- Writes which alerts webhooks were told of, if what is there has this version; 0: nothing is there.
insert into tidemill_alert_book (is_it, version, book)
select 1, 1, ?2
where ?1 = 0 or exists (select 1 from tidemill_alert_book)
on conflict (is_it) do update
set version = version + 1, book = excluded.book
where version = ?1
