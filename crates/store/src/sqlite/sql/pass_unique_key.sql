-- The key goes to the one that was kept for afterwards.
update tidemill_unique_key set id = next_id, next_id = null
where key = ?1 and next_id is not null
