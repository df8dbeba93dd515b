-- Says which of these attempts were settled before, under the same token, and whether as cancelled.
select i.id, exists (select from tidemill.outcome o where o.id = i.id and o.token = i.token and o.state = 5)
from unnest($1::uuid[], $2::int8[]) i(id, token)
where exists (select from tidemill.outcome o where o.id = i.id and o.token = i.token)
    or exists (
        -- A rescue does not know when the handler started.
        select from tidemill.attempt a where a.id = i.id and a.token = i.token and a.started_at is not null);
