-- The next letters that a plan is for, and whether each is as it was when the plan was made.
select letter.id, dead.id is not null
from tidemill_plan_letter as letter
left join tidemill_dead as dead on dead.id = letter.id and dead.died_at = letter.died_at
    and dead.triage = letter.triage and dead.archived = letter.archived and dead.redrives = letter.redrives
where letter.plan = ?1 and letter.id > ?2
order by letter.id
limit ?3
