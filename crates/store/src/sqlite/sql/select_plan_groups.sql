-- How many letters of a plan died of what, most numerous first, each time with the latest of them.
select fingerprint, kind, class, error, count, id
from (
    select
        dead.fingerprint, dead.kind, dead.class, substr(dead.error, 1, 500) as error, dead.id,
        count(*) over (partition by dead.fingerprint) as count,
        row_number() over (partition by dead.fingerprint order by dead.died_at desc, dead.id desc) as place
    from tidemill_plan_letter as letter
    join tidemill_dead as dead on dead.id = letter.id
    where letter.plan = ?1
)
where place <= ?2
order by count desc, fingerprint, place
limit ?3
