-- Forgets plans that are kept no longer and whose letters are forgotten.
delete from tidemill_plan
where (kept_until <= ?1 or id <= (select id from tidemill_plan order by id desc limit 1 offset ?2))
    and not exists (select 1 from tidemill_plan_letter as letter where letter.plan = tidemill_plan.id)
