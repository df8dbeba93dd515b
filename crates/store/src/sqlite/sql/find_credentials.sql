-- The credential of a hash, live or not.
select id, name, role, queues, tenant, created_at, expires_at, revoked_at, used_at, hash
from tidemill_credential
where hash = ?1
