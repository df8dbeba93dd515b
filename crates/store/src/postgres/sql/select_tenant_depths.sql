-- The tenants of a queue with the most jobs waiting, at most ten. Its cost grows with the tenants that have some.
select t.tenant, sum(t.depth)::int8 as depth
from (
    select t.tenant, t.depth from tidemill.tenant_depth t where t.queue = $1::text
    union all
    select d.tenant, d.came - d.went from tidemill.depth_delta d where d.queue = $1::text and d.tenant <> ''
) t
group by t.tenant having sum(t.depth) > 0
order by depth desc, t.tenant limit 10;
