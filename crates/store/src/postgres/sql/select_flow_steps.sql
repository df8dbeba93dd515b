-- The steps of a flow, with the first job of each.
select s.number, s.name, j.kind, j.id, s.state, s.jobs, s.ok, s.failed, s.joined::text, s.started_at, s.ended_at,
    s.reason, s.undo::text, s.undoes, s.pivot, s.superseded
from tidemill.flow_step s left join lateral (
    select j.kind, j.id from tidemill.job j where j.flow = s.flow and j.step = s.number order by j.place, j.id limit 1
) j on true
where s.flow = $1::uuid order by s.number;
