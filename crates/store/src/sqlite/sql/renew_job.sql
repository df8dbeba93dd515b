-- A run that continues anew has another payload, and is in its next turn. Nothing of its journal is another run's now.
update tidemill_job set payload = ?2, options = json_set(
    json_remove(coalesce(options, '{}'), '$.origins'), '$.turn', coalesce(json_extract(options, '$.turn'), 0) + 1
)
where id = ?1
