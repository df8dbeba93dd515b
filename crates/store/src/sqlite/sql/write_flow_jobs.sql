-- Writes a job of a flow once; it waits for its step.
insert or ignore into tidemill_job (
    id, kind, queue, priority, tenant, key, run_at, payload, options, created_at, flow, step
)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
