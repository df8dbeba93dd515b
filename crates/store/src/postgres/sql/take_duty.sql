-- Takes or keeps a duty that one node at a time has, and answers since when it has had it without a gap; no row when
-- another has it.
insert into tidemill.duty as d (name, holder, until, since)
select $2::text, $3::uuid, p.now + $4::int8 * interval '1 us', p.now
from (select coalesce($1::timestamptz, now()) as now) p
on conflict (name) do update set holder = excluded.holder, until = excluded.until,
    since = case when d.holder = excluded.holder and d.until > excluded.since then d.since else excluded.since end
where d.holder = excluded.holder or d.until <= excluded.since
returning since;
