-- Workers that have not beaten for their lease, or for ?2; only those whose lease is not longer than ?3, if given.
select id from tidemill_worker
where beat_at < ?1 - coalesce(lease_us, ?2) and (?3 is null or coalesce(lease_us, ?2) <= ?3)
