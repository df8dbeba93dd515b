-- The next letters to which a plan did something, and whether each is as that left it; those are locked.
with next as materialized (
    select l.id, l.died_at, l.redrives from tidemill.plan_letter l
    where l.plan = $1::uuid and l.id > $2::uuid and l.fate = 1 order by l.id limit $3::int8
), same as materialized (
    select d.id, d.attempt, d.error from next n join tidemill.dead d on d.id = n.id
    where d.died_at = n.died_at and d.triage = coalesce($4::int2, d.triage)
        and d.archived = coalesce($5::boolean, d.archived) and d.redrives = n.redrives + $6::int2
    order by d.id for update of d
)
select n.id, s.id is not null, s.attempt, s.error from next n left join same s on s.id = n.id order by n.id;
