-- The next letters that a plan is for, and whether each is as it was when the plan was made; those are locked.
with next as materialized (
    select l.id, l.died_at, l.triage, l.archived, l.redrives from tidemill.plan_letter l
    where l.plan = $1::uuid and l.id > $2::uuid order by l.id limit $3::int8
), same as materialized (
    select d.id from next n join tidemill.dead d on d.id = n.id
    where d.died_at = n.died_at and d.triage = n.triage and d.archived = n.archived and d.redrives = n.redrives
    order by d.id for update of d
)
select n.id, s.id is not null from next n left join same s on s.id = n.id order by n.id;
