-- Whether a credential is kept, and whether its name is another live one's.
select exists (select 1 from tidemill_credential where id = ?2), exists (
    select 1 from tidemill_credential
    where name = ?3 and id <> ?2 and revoked_at is null and (expires_at is null or expires_at > ?1)
)
