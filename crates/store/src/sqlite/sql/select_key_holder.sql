-- Who holds the unique key that a job is kept for.
select id from tidemill_unique_key where next_id = ?1
