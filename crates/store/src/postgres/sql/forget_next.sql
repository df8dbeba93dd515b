-- Takes away the place of jobs that were kept for afterwards; answers which had one.
with kept as (
    select key, next_id from tidemill.unique_key where key = any ($1::text[]) and next_id = any ($2::uuid[])
)
update tidemill.unique_key u set next_id = null, next_due = null from kept k where u.key = k.key
returning k.next_id;
