-- Forgets samples from before the latest one that is older than ?1, and those of queues that are forgotten.
delete from tidemill_depth_sample as sample
where exists (select 1 from tidemill_depth_sample where queue = sample.queue and at > sample.at and at <= ?1)
    or not exists (select 1 from tidemill_depth where queue = sample.queue)
