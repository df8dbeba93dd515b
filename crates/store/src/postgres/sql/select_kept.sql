-- Whether a job is kept for after another; its key is locked.
select from tidemill.unique_key u where u.key = $1::text and u.next_id = $2::uuid;
