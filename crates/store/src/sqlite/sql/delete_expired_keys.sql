-- Forgets keys whose period is over, unless a job is kept for after their holder. Some at a time.
delete from tidemill_unique_key
where key in (
    select key from tidemill_unique_key
    where until is not null and until <= ?1 and next_id is null
    limit ?2
)
