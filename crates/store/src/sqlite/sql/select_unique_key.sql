-- Who holds a key, and who is kept for afterwards.
select id, next_id from tidemill_unique_key where key = ?1
