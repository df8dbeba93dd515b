-- A registered worker lives; written only if its last beat is older than a moment.
update tidemill_worker set beat_at = ?2 where id = ?1 and beat_at < ?3
