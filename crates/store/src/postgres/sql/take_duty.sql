-- Takes or keeps a duty that one node at a time has; no row when another has it.
insert into tidemill.duty as d (name, holder, until)
select $2::text, $3::uuid, p.now + $4::int8 * interval '1 us' from (select coalesce($1::timestamptz, now()) as now) p
on conflict (name) do update set holder = excluded.holder, until = excluded.until
where d.holder = excluded.holder or d.until <= coalesce($1::timestamptz, now())
returning true;
