-- A letter is again what it was when a plan was made, as far as the plan changed it.
update tidemill_dead as dead
set triage = iif(?3, letter.triage, dead.triage), archived = iif(?4, letter.archived, dead.archived),
    redrives = dead.redrives - ?5
from tidemill_plan_letter as letter
where letter.plan = ?1 and letter.id = ?2 and dead.id = ?2
