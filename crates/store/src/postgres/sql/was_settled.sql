-- Says which of these attempts were settled before, under the same token, and whether as cancelled. Each is looked for
-- by its keys: as an `exists` the planner may make a hash table of all there are.
select i.id, coalesce(o.state = 5, false)
from unnest($1::uuid[], $2::int8[]) i(id, token)
left join lateral (
    select o.state from tidemill.outcome o where o.id = i.id and o.token = i.token limit 1
) o on true
left join lateral (
    -- What a rescue wrote is lost, or has no start.
    select true as is_there from tidemill.attempt a
    where a.id = i.id and a.token = i.token and a.started_at is not null
        and a.class is distinct from 'lost' limit 1
) a on true
where o.state is not null or a.is_there;
