-- Any tenant of a queue that has jobs waiting.
select tenant from tidemill_tenant_depth where queue = ?1 and depth > 0 order by random() limit 1
