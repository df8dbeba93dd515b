-- Writes fresh copies of steps, without their jobs, and the edges that lead to them; their flow's lock is held.
with step as (
    insert into tidemill.flow_step (flow, number, name, state, jobs, "left", joined, parents_left, slow, early, late_at,
        late_look_at, grown, guarded)
    select s.flow, i.number, i.name, 0, 0, 0, s.joined, 0, s.slow, s.early, l.late_at, l.late_at, s.grown,
        s.guarded
    from unnest($3::int4[], $4::int4[], $5::text[]) i(old, number, name)
    join tidemill.flow_step s on s.flow = $2::uuid and s.number = i.old, lateral (
        select coalesce($1::timestamptz, now()) + (s.joined ->> 'within_ms')::int8 * interval '1 ms' as late_at
    ) l
)
insert into tidemill.flow_edge (flow, from_step, to_step, on_end, when_holds, held)
select $2, e.from_step, e.to_step, e.on_end, e.when_holds, e.held
from unnest($6::int4[], $7::int4[], $8::int2[], $9::text[], $10::boolean[]) e(from_step, to_step, on_end, when_holds, held);
