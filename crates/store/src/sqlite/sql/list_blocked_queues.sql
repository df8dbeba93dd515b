-- The queues of jobs that wait for another one; of a step of a flow that has not let them go, each that it has.
select job.queue
from tidemill_unique_key as held
join tidemill_job as job on job.id = held.next_id
where held.next_id is not null
union
select queue from tidemill_line_waiting
union
select job.queue
from tidemill_flow as flow
join tidemill_flow_step as step on step.flow = flow.id and step.state < 2
join tidemill_job as job on job.flow = step.flow and job.step = step.number and job.id > step.opened
where flow.finished_at is null
