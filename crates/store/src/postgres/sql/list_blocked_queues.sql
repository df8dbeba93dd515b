-- The queues of jobs that wait for another one; of a step of a flow that has not let them go, by a look at a thousand.
select distinct j.queue from tidemill.unique_key u join tidemill.job j on j.id = u.next_id where u.next_id is not null
union select w.queue from tidemill.line_waiting w
union select j.queue
from tidemill.flow f
join tidemill.flow_step s on s.flow = f.id and s.state < 2
cross join lateral (
    select j.queue from tidemill.job j where j.flow = s.flow and j.step = s.number order by j.place desc, j.id limit 1000
) j
where f.finished_at is null;
