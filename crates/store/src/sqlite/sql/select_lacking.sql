-- One job that waits or is blocked, of the queues from ?1 to ?2 and of kind ?3 or any, without a tenant (?4) or key
-- (not ?4). Reads at most ?5 rows of what waits, and of each way to be blocked; none of what has finished. What runs
-- stands in leases, and is looked up by them. A million that wait and have a key cost what 100,000 cost: some 50 ms.
select id, kind, queue from (
    select id, kind, queue from (
        select id, kind, queue, tenant, key from tidemill_ready where queue between ?1 and ?2 limit ?5
    )
    where (?3 is null or kind = ?3) and case when ?4 then tenant else key end = ''
    limit 1
)
union all
select id, kind, queue from (
    select job.id, job.kind, job.queue from (
        select * from (select next_id as id from tidemill_unique_key where next_id is not null limit ?5)
        union all
        select * from (select id from tidemill_line_waiting where queue between ?1 and ?2 limit ?5)
        union all
        select * from (
            select job.id
            from tidemill_flow as flow
            join tidemill_flow_step as step on step.flow = flow.id and step.state < 2
            join tidemill_job as job on job.flow = step.flow and job.step = step.number and job.id > step.opened
            where flow.finished_at is null
            limit ?5
        )
        union all
        select * from (
            select job as id from tidemill_run
            where waits is not null and json_extract(waits, '$.until') is null or parked is not null or paused
            limit ?5
        )
    ) as blocked
    join tidemill_job as job on job.id = blocked.id
    where job.queue between ?1 and ?2 and (?3 is null or job.kind = ?3)
        and case when ?4 then job.tenant else job.key end is null
        and not exists (select 1 from tidemill_outcome where id = job.id)
    limit 1
)
limit 1
