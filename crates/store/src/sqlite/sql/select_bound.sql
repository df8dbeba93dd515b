-- The bound of a queue, if the rule that holds for it has one, and what it has counted, now and about a minute ago.
select rule.depth_max, rule.overflow, rule.wait_ms, rule.divert, coalesce(depth.came, 0), coalesce(depth.went, 0),
    sample.at, sample.came, sample.went
from (
    select depth_max, overflow, wait_ms, divert from tidemill_queue
    where name = ?1 or (substr(name, -1) = '*' and substr(?1, 1, length(name) - 1) = substr(name, 1, length(name) - 1))
    order by name = ?1 desc, length(name) desc
    limit 1
) as rule
left join tidemill_depth as depth on depth.queue = ?1
left join tidemill_depth_sample as sample on sample.queue = ?1 and sample.at = coalesce(
    (select max(at) from tidemill_depth_sample where queue = ?1 and at <= ?2 - 60000000),
    (select min(at) from tidemill_depth_sample where queue = ?1)
)
where rule.depth_max is not null
