-- A flow that runs is done; it is kept as long as it asks for.
update tidemill_flow set state = 2, jobs_open = 0, finished_at = ?2, forget_at = ?2 + 1000 * retain_ms where id = ?1
