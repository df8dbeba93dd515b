-- The next letters to which a plan did something, and whether each is as that left it.
select letter.id, dead.id is not null, dead.attempt, dead.error
from tidemill_plan_letter as letter
left join tidemill_dead as dead on dead.id = letter.id and dead.died_at = letter.died_at
    and dead.triage = coalesce(?4, dead.triage) and dead.archived = coalesce(?5, dead.archived)
    and dead.redrives = letter.redrives + ?6
where letter.plan = ?1 and letter.id > ?2 and letter.fate = 1
order by letter.id
limit ?3
