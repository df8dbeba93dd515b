-- How many letters of a plan died of what, most numerous first, each time with the latest of them.
select g.fingerprint, g.kind, g.class, g.error, g.count, g.id
from (
    select d.fingerprint, d.kind, d.class, left(d.error, 500) as error, d.id,
        count(*) over (partition by d.fingerprint) as count,
        row_number() over (partition by d.fingerprint order by d.died_at desc, d.id desc) as place
    from tidemill.plan_letter l join tidemill.dead d on d.id = l.id
    where l.plan = $1::uuid
) g
where g.place <= $2::int8
order by g.count desc, g.fingerprint, g.place limit $3::int8;
