-- How many wait in lines of a queue, up to ?2; and of its lines in which some do those that a dead one blocks, with one
-- of these: ?3 lines are looked at, and those of the ?3 latest deaths.
with recursive waiting (tenant, key, left_over) as (
    select * from (
        select tenant, key, ?3 from tidemill_line_waiting where queue = ?1 order by tenant, key limit 1
    )
    union all
    select next.tenant, next.key, waiting.left_over - 1
    from waiting
    join tidemill_line_waiting as next on next.number = (
        select number from tidemill_line_waiting
        where queue = ?1 and (tenant, key) > (waiting.tenant, waiting.key)
        order by tenant, key, number
        limit 1
    )
    where waiting.left_over > 1
), line (tenant, key) as (
    select tenant, key from waiting
    union
    select coalesce(job.tenant, ''), job.key
    from (select id from tidemill_dead order by died_at desc limit ?3) as dead
    join tidemill_job as job on job.id = dead.id
    where job.queue = ?1 and job.key is not null
), stuck (key, head) as (
    select line.key, first.head
    from line
    join tidemill_line as first on first.queue = ?1 and first.tenant = line.tenant and first.key = line.key
    join tidemill_outcome as outcome on outcome.id = first.head and outcome.state = 6
    where exists (
        select 1 from tidemill_line_waiting as place
        where place.queue = ?1 and place.tenant = line.tenant and place.key = line.key
    )
)
select
    (select count(*) from (select 1 from tidemill_line_waiting where queue = ?1 limit ?2)),
    (select count(*) from stuck),
    (select key from stuck order by head limit 1),
    (select head from stuck order by head limit 1)
