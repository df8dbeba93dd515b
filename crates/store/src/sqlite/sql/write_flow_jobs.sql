-- Writes a job of a flow once; it waits for its step, and stands where that is opened.
insert or ignore into tidemill_job (
    id, kind, queue, priority, tenant, key, run_at, payload, options, created_at, flow, step
)
values (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7, ?8, ?9, ?10, ?11)
