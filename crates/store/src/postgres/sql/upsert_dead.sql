-- Writes dead letters. One that died before keeps its redrives and notes, and is new again.
insert into tidemill.dead as d (id, kind, queue, tenant, class, error, fingerprint, attempt, started_at, died_at)
select i.id, i.kind, i.queue, i.tenant, i.class, i.error, i.fingerprint, i.attempt, i.started_at,
    coalesce($1::timestamptz, now())
from unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::int2[],
    $10::timestamptz[])
    i(id, kind, queue, tenant, class, error, fingerprint, attempt, started_at)
on conflict (id) do update
set kind = excluded.kind, queue = excluded.queue, tenant = excluded.tenant, class = excluded.class,
    error = excluded.error, fingerprint = excluded.fingerprint, attempt = excluded.attempt,
    started_at = excluded.started_at, died_at = excluded.died_at, triage = 0, archived = false;
