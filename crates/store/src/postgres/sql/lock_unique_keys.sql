-- Locks unique keys, in order, each by a look of its own: first of all locks, wherever keys are freed.
select u.key
from (select distinct k collate "C" as key from unnest($1::text[]) k order by 1) k, lateral (
    select u.key from tidemill.unique_key u where u.key = k.key for update
) u;
