-- Notes when a credential was last used; never earlier than is known.
update tidemill_credential set used_at = ?2 where id = ?1 and (used_at is null or used_at < ?2)
