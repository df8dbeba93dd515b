-- A page of finished jobs after $1, oldest first. Bare results that a key still keeps are left out; so are jobs of
-- flows, which are kept and forgotten with their flow.
-- Each is looked for by itself (offset 0): a hash of all that have a key would be made of all jobs for every page.
-- The size of a dead letter is what is stored of it: its payload is not read for it.
select o.id, o.queue, o.state, o.finished_at, o.retain_ms, case when o.state = 6 then coalesce(
    pg_column_size(o.error) + (select pg_column_size(j.payload) from tidemill.job j where j.id = o.id), 0)
    else 0 end::int8
from tidemill.outcome o
where o.id > $1::uuid and o.flow is null and not (o.bare and exists (
    select from tidemill.job j join tidemill.unique_key u on u.key = j.unique_key and u.id = j.id
    where j.id = o.id offset 0))
order by o.id limit $2::int8;
