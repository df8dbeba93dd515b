-- Enqueues the jobs of a JSON array, in its order, and leaves a receipt for each.
insert into tidemill_enqueue (
    id, kind, payload, queue, priority, run_at, delay_ms, tenant, key, options,
    whole_key, unique_scope, unique_period_ms, on_duplicate, force, receipt, within
)
select
    unhex(value ->> 'id'), value ->> 'kind', value ->> 'payload', value ->> 'queue',
    value ->> 'priority', value ->> 'run_at', value ->> 'delay_ms', value ->> 'tenant',
    value ->> 'key', value ->> 'options', value ->> 'whole_key', value ->> 'unique_scope',
    value ->> 'unique_period_ms', value ->> 'on_duplicate', value ->> 'force', ?2,
    value ->> 'within'
from json_each(?1)
order by key
