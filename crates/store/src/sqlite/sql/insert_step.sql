-- Writes a step of a flow.
insert into tidemill_flow_step (
    flow, number, name, state, jobs, left, joined, parents_left, late_at, undo, undoes, pivot, grown
)
values (?1, ?2, ?3, 0, ?4, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
