-- Forgets the letters of a plan that is not to be.
delete from tidemill_plan_letter where plan = ?1
