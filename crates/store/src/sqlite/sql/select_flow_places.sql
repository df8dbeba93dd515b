-- The queues and tenants that jobs of a flow are of, each once.
select distinct queue, tenant from tidemill_job where flow = ?1
