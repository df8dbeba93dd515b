-- Adds to streams, each only if its lease is still there, names the job and has not let it go. Answers each item whose
-- lease holds: where the stream ended before, how many bytes it had, whether the item was there, and where it ends now,
-- if it was written. One that is neither there nor written nor too large met another writer, and comes again.
with held as materialized (
    select l.token, l.ids, l.gone
    from (select distinct t from unnest($4::int8[]) t order by t) t, lateral (
        select l.token, l.ids, l.gone from tidemill.lease l where l.token = t.t and l.worker = $2::uuid
        for key share
    ) l
), valid as materialized (
    select i.place, i.job, i.sent, i.chunks, i.size, i.bytes, i.progress, coalesce(e.last, 0) as last,
        coalesce(e.bytes, 0) as before, coalesce(e.sent = i.sent, false) as there
    from unnest($3::uuid[], $4, $5::uuid[], $6::int4[], $7::int8[], $8::text[], $9::text[])
        with ordinality i(job, token, sent, size, bytes, progress, chunks, place)
    join held h on h.token = i.token and i.job = any (h.ids) and i.job <> all (h.gone)
    left join lateral (
        select s.last, s.bytes, s.sent from tidemill.stream s where s.job = i.job order by s.first desc limit 1
    ) e on true
), written as (
    insert into tidemill.stream (job, first, last, bytes, at, sent, progress, chunks)
    select v.job, v.last + 1, v.last + v.size, v.before + v.bytes, coalesce($1::timestamptz, now()), v.sent, v.progress,
        v.chunks
    from valid v
    where v.size > 0 and not v.there and v.before + v.bytes <= $10::int8
    order by v.job, v.place
    on conflict (job, first) do nothing
    returning sent, last
)
select v.place, v.last, v.before, v.there, w.last from valid v left join written w on w.sent = v.sent;
