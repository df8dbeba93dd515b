-- Steps, as a board needs them. Without a number, all of the flow.
select
    number, name, state, jobs, left, ok, failed, joined, parents_left, came, met, missed, reason, undo, undoes, pivot,
    grown, superseded, slow, alarms, lost, refused, early,
    guarded
from tidemill_flow_step
where flow = ?1 and (?2 is null or number = ?2)
