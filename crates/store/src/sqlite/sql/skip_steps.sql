-- Ends the jobs of a step that will not run. Their flow need not hear of it: the outcome names no step.
insert or ignore into tidemill_outcome (id, queue, state, attempt, lost, finished_at, keyed, error, flow)
select id, queue, 5, 0, 0, ?3, 0, 'skipped: ' || ?4, flow from tidemill_job where flow = ?1 and step = ?2
