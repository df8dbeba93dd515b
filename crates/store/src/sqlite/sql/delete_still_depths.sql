-- Forgets queues that have been empty, and have not changed, since ?1.
delete from tidemill_depth
where came = went and above_since is null and not exists (
    select 1 from tidemill_depth_sample where queue = tidemill_depth.queue and at > ?1
)
