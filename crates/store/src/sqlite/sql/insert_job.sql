-- Writes a body once: a job that is sent again under its id changes nothing.
insert or ignore into tidemill_job (
    id, kind, queue, priority, tenant, key, run_at, payload, options, created_at
)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
