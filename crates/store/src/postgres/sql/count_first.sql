-- How many jobs of a flow that has not begun wait for no step, by queue; none where no queue has a bound.
select j.queue, count(*)
from tidemill.flow_step s join tidemill.job j on j.flow = s.flow and j.step = s.number
where s.flow = $1::uuid and s.parents_left = 0 and exists (select from tidemill.queue q where q.depth_max is not null)
group by j.queue;
