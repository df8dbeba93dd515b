-- What came into every queue and went out of it, now and about a minute ago; and what was dropped.
select depth.queue, depth.came, depth.went, sample.at, sample.came, sample.went, depth.dropped
from tidemill_depth as depth
left join tidemill_depth_sample as sample on sample.queue = depth.queue and sample.at = coalesce(
    (select max(at) from tidemill_depth_sample where queue = depth.queue and at <= ?1 - 60000000),
    (select min(at) from tidemill_depth_sample where queue = depth.queue)
)
order by depth.queue
