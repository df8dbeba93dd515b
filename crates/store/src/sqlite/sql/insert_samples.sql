-- Notes what queues have counted, where that has changed since it was noted last.
insert or ignore into tidemill_depth_sample (queue, at, came, went)
select depth.queue, ?1, depth.came, depth.went
from tidemill_depth as depth
left join tidemill_depth_sample as last on last.queue = depth.queue
    and last.at = (select max(at) from tidemill_depth_sample where queue = depth.queue)
where last.came is not depth.came or last.went is not depth.went
