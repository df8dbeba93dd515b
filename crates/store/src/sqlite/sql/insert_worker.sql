-- Announces a worker; one that registers again starts anew.
insert or replace into tidemill_worker (id, name, queues, kinds, slots, slots_of, started_at, beat_at, lease_us)
values (?1, ?2, ?3, ?4, ?5, ?8, ?6, ?6, ?7)
