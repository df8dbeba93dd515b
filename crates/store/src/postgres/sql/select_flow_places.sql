-- The queues and tenants that jobs of a flow are of, each once.
select distinct queue, tenant from tidemill.job where flow = $1::uuid;
