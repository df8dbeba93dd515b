-- Forgets letters of plans that are kept no longer: their time is over, or too many are newer. So many at a time.
delete from tidemill_plan_letter
where (plan, id) in (
    select letter.plan, letter.id
    from tidemill_plan as plan
    join tidemill_plan_letter as letter on letter.plan = plan.id
    where plan.kept_until <= ?1
        or plan.id <= (select id from tidemill_plan order by id desc limit 1 offset ?2)
    limit ?3
)
