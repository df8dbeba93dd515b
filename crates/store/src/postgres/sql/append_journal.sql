-- Writes entries of journals, each run's only if its lease is still there and has not let it go. Answers the runs whose
-- leases hold. $14 are the pieces of mail that entries have taken: only what is written now counts, since a write may
-- be sent again. A rescue either waits for this or makes it stale. Runs are locked before leases, as everywhere.
with locked as materialized (
    select r.job from tidemill.run r where r.job = any ($9::uuid[]) order by r.job for no key update
), held as materialized (
    select l.token, l.gone
    from (select distinct t from unnest($4::int8[]) t order by t) t, lateral (
        select l.token, l.gone from tidemill.lease l
        where l.token = t.t and l.worker = $2::uuid and (select count(*) from locked) >= 0
        for key share
    ) l
), valid as materialized (
    select i.job, i.begins, i.owes, i.state
    from unnest($3::uuid[], $4, $5::text[], $10::boolean[], $11::text[]) i(job, token, begins, owes, state)
    join held h on h.token = i.token and i.job <> all (h.gone)
), written as (
    insert into tidemill.journal (job, number, at, entry)
    select e.job, e.number, coalesce($1::timestamptz, now()), e.entry::json
    from unnest($6::uuid[], $7::int4[], $8::text[]) e(job, number, entry)
    join valid v on v.job = e.job
    on conflict (job, number) do nothing
    returning job, number
), heard as (
    select e.job, count(*) as signals, sum(m.bytes)::int8 as bytes
    from unnest($6, $7, $14::int8[]) e(job, number, mail)
    join written w on w.job = e.job and w.number = e.number
    join lateral (
        select m.bytes from tidemill.mail m where m.job = e.job and m.number = e.mail limit 1
    ) m on m.bytes is not null
    where e.mail is not null
    group by e.job
), begun as (
    insert into tidemill.run as r (job, began_at, version, owes, state, unread, unread_bytes)
    select v.job, coalesce($1, now()), coalesce(v.begins, ''), v.owes, v.state::json, -coalesce(h.signals, 0),
        -coalesce(h.bytes, 0)
    from valid v left join heard h on h.job = v.job
    where v.begins is not null or v.owes or v.state is not null or h.job is not null
    on conflict (job) do update set owes = r.owes or excluded.owes, state = coalesce(excluded.state, r.state),
        version = case when r.version = '' then excluded.version else r.version end,
        unread = r.unread + excluded.unread, unread_bytes = r.unread_bytes + excluded.unread_bytes
), forgotten as (
    delete from tidemill.journal j using unnest($12::uuid[], $13::int4[]) f(job, number), valid v
    where j.job = f.job and j.number = f.number and v.job = f.job
)
select job from valid;
