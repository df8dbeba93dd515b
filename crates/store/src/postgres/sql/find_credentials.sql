-- Those of these hashes that are kept, and the present.
select id, name, role, queues, tenant, created_at, expires_at, revoked_at, used_at, hash,
    coalesce($1::timestamptz, now())
from tidemill.credential
where hash = any ($2::bytea[]);
