-- Forgets credentials that ended long ago, and the oldest of those that have ended when there are too many.
delete from tidemill_credential
where min(coalesce(revoked_at, expires_at), coalesce(expires_at, revoked_at)) < ?2
    or ((revoked_at is not null or expires_at <= ?1) and id <= (
        select id from tidemill_credential where revoked_at is not null or expires_at <= ?1
        order by id desc limit 1 offset ?3
    ))
