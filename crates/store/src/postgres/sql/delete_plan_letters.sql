-- Forgets letters of plans that are kept no longer: their time is over, or too many are newer. So many at a time.
with gone as materialized (
    select l.plan, l.id from tidemill.plan p join tidemill.plan_letter l on l.plan = p.id
    where p.kept_until <= coalesce($1::timestamptz, now())
        or p.id <= (select n.id from tidemill.plan n order by n.id desc limit 1 offset $2::int8)
    limit $3::int8
), forgotten as (
    delete from tidemill.plan_letter l using gone g where l.plan = g.plan and l.id = g.id returning 1
)
select count(*) from forgotten;
