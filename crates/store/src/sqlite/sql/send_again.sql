-- A dead job that runs again has another payload, if there is one, and all its time anew.
update tidemill_job
set payload = ifnull(?2, payload), options = json_set(ifnull(options, '{}'), '$.replayed_at', ?3)
where id = ?1
