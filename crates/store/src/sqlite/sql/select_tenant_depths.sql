-- The tenants of a queue with the most jobs waiting, at most ten. Its cost grows with the tenants that have some.
select tenant, depth from tidemill_tenant_depth where queue = ?1 and depth > 0 order by depth desc, tenant limit 10
