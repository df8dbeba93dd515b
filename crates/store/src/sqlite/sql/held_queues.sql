-- The queues of those that a gate holds, found by one look each, and of those whose claims it turned away.
with recursive held (queue) as (
    select min(queue) from tidemill_ready where line = 2 and gate = ?1
    union all
    select (select min(queue) from tidemill_ready where line = 2 and gate = ?1 and queue > held.queue)
    from held where held.queue is not null
)
select queue from held where queue is not null
union
select queue from tidemill_turned_away where gate = ?1
