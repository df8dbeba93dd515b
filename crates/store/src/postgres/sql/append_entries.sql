-- Writes new entries of journals, and nothing else; each run's only if its lease is still there and has not let it go.
-- Answers the runs whose leases hold. Fails as a whole where one of the entries is there already: append_journal.sql looks
-- for each of them, and for all else that an entry may bring, at half as much again. A rescue either waits for this or
-- makes it stale.
with held as materialized (
    select l.token, l.gone
    from (select distinct t from unnest($4::int8[]) t order by t) t, lateral (
        select l.token, l.gone from tidemill.lease l
        where l.token = t.t and l.worker = $2::uuid
        for key share
    ) l
), begun as (
    insert into tidemill.run as r (job, began_at, version)
    select b.job, coalesce($1::timestamptz, now()), b.version
    from unnest($3::uuid[], $4, $5::text[]) b(job, token, version)
    join held h on h.token = b.token and b.job <> all (h.gone)
    where b.version is not null
    -- There is one where mail came before the first entry.
    on conflict (job) do update set version = excluded.version where r.version = ''
)
insert into tidemill.journal (job, number, at, entry)
select e.job, e.number, coalesce($1, now()), e.entry::json
from unnest($6::uuid[], $7::int8[], $8::int4[], $9::text[]) e(job, token, number, entry)
join held h on h.token = e.token and e.job <> all (h.gone)
returning job;
