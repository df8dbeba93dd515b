-- What became of a letter of a plan.
update tidemill_plan_letter set fate = ?3 where plan = ?1 and id = ?2
