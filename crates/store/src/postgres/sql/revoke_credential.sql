-- Ends a credential; when it was ended first stays. No row: there is none of this id.
update tidemill.credential set revoked_at = coalesce(revoked_at, $1::timestamptz, now())
where id = $2::uuid
returning id;
