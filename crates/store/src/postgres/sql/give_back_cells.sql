-- Gives time of rates back that was taken by jobs which were not started; what has passed of it is nobody's any more.
with unused as (
    select g.gate, sum(g.us) as us from unnest($1::text[], $2::int8[]) g(gate, us) group by g.gate
), locked as materialized (
    select x.name from tidemill.gate x where x.name = any ($1) order by x.name for update
)
update tidemill.gate x set tat = x.tat - u.us * interval '1 us'
from locked l, unused u
where x.name = l.name and u.gate = l.name;
