-- Takes what has ended of these flows and is not counted yet, apart from what runs again; their locks are held.
with taken as (
    delete from tidemill.flow_arrival where flow = any ($1::uuid[]) returning flow, step, ok, failed
)
select flow, step, sum(ok)::int8, sum(failed)::int8 from taken group by flow, step, failed < 0;
