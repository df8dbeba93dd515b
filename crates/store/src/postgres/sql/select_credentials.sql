-- All credentials, newest first.
select id, name, role, queues, tenant, created_at, expires_at, revoked_at, used_at
from tidemill.credential
order by id desc;
