-- What a queue has counted, now and about a minute ago. What did not change for a minute had counted the same.
select coalesce(depth.came, 0), coalesce(depth.went, 0), depth.above_since,
    iif(depth.changed_at between 1 and ?2 - 60000000, depth.changed_at, sample.at),
    iif(depth.changed_at between 1 and ?2 - 60000000, depth.came, sample.came),
    iif(depth.changed_at between 1 and ?2 - 60000000, depth.went, sample.went)
from (select 1)
left join tidemill_depth as depth on depth.queue = ?1
left join tidemill_depth_sample as sample on sample.queue = ?1 and sample.at = coalesce(
    (select max(at) from tidemill_depth_sample where queue = ?1 and at <= ?2 - 60000000),
    (select min(at) from tidemill_depth_sample where queue = ?1)
)
