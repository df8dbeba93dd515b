-- All workers that are registered, the longest-serving first.
select id, name, queues, kinds, slots, started_at, beat_at, slots_of, lease_us from tidemill.worker order by started_at, id;
