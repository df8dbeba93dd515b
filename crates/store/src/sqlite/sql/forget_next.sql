-- Nobody is kept for after the holder of the key any more.
update tidemill_unique_key set next_id = null where next_id = ?1
