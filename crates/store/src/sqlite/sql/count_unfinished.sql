-- How many jobs wait, kept ones and those in lines included, and how many run. Exact at one moment. What a flow has not
-- let go is what is left of its steps that wait, and what those that are being opened have still to let go; of a flow
-- with a cap, what is left of it without what is under way.
select
    (select count(*) from tidemill_ready)
    + (select count(*) from tidemill_unique_key where next_id is not null)
    + (select count(*) from tidemill_line_waiting)
    + (
        select coalesce(sum(step.left), 0)
        from tidemill_flow_step as step
        join tidemill_flow as flow on flow.id = step.flow
        where step.state = 0 or step.state < 3 and flow.at_once is not null
    )
    + (
        select count(*)
        from tidemill_flow_step as step
        join tidemill_flow as flow on flow.id = step.flow and flow.at_once is null
        join tidemill_job as job on job.flow = step.flow and job.step = step.number and job.id > step.opened
        where step.state = 1 and not exists (select 1 from tidemill_outcome where id = job.id)
    )
    - (select coalesce(sum(jobs_open), 0) from tidemill_flow where at_once is not null and finished_at is null),
    (select coalesce(sum(length(jobs) / 20), 0) from tidemill_lease)
