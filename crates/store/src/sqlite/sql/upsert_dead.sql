-- A job gave up. One that did so before keeps its redrives and notes, and is new again.
insert into tidemill_dead (
    id, kind, queue, tenant, class, error, fingerprint, attempt, died_at
)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
on conflict (id) do update set
    kind = excluded.kind, queue = excluded.queue, tenant = excluded.tenant,
    class = excluded.class, error = excluded.error, fingerprint = excluded.fingerprint,
    attempt = excluded.attempt, died_at = excluded.died_at, triage = 0, archived = 0
