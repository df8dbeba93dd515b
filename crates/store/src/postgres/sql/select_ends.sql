-- How those of these jobs ended that are there; nulls: not yet. Each is found by its keys.
select q.id, o.state, o.output::text, o.error
from unnest($1::uuid[]) q(id)
cross join lateral (select from tidemill.job j where j.id = q.id limit 1) j
left join lateral (
    select o.state, o.output, o.error from tidemill.outcome o where o.id = q.id limit 1
) o on true;
