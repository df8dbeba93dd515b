-- Writes a step of a flow.
insert into tidemill_flow_step (
    flow, number, name, state, jobs, left, joined, parents_left, late_at, undo, undoes, pivot, grown, slow, started_at,
    ended_at
)
values (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, iif(?4 = 0, null, ?14), iif(?4 > 2, ?14, null))
