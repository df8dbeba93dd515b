-- A key that is held only while its job is unfinished is free.
delete from tidemill_unique_key where key = ?1 and scope = 'unfinished' and next_id is null
