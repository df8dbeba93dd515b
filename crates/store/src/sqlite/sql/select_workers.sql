-- All workers that are registered, oldest first.
select id, name, queues, kinds, slots, started_at, beat_at, slots_of, lease_us from tidemill_worker order by id
