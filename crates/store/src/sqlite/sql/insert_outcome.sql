-- What became of a job, once: a second outcome of the same job is an error.
insert into tidemill_outcome (
    id, queue, state, attempt, lost, token, worker, finished_at, retain_ms, keyed, output, error, flow, step
)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
