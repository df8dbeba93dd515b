-- Announces a worker; one that registers again starts anew, but for what it may hold.
insert or replace into tidemill_worker (id, name, queues, kinds, slots, reach, slots_of, started_at, beat_at, lease_us)
values (?1, ?2, ?3, ?4, ?5, max(2 * ?5, coalesce((select reach from tidemill_worker where id = ?1), 0)), ?8, ?6, ?6, ?7)
