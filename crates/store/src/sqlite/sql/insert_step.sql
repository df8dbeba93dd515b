-- Writes a step of a flow as it stands, with all that it has heard: it may have begun before it is written.
insert into tidemill_flow_step (
    flow, number, name, state, jobs, left, ok, failed, joined, parents_left, came, met, missed, reason, late_at, undo,
    undoes, pivot, grown, slow, early, started_at, ended_at, alarms, lost,
    refused, guarded
)
values (
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21,
    iif(?4 between 1 and 4, ?22, null), iif(?4 > 2, ?22, null), ?23, ?24, ?25, ?26
)
