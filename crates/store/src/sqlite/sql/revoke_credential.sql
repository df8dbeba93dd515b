-- Ends a credential; when it was ended first stays. No row: there is none of this id.
update tidemill_credential set revoked_at = coalesce(revoked_at, ?1) where id = ?2
