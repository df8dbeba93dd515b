-- Takes jobs out of leases that were locked: these tokens hold them no more.
update tidemill.lease l set gone = l.gone || i.ids
from (select token, array_agg(id) as ids from unnest($1::int8[], $2::uuid[]) i(token, id) group by token) i
where l.token = any ($1) and l.token = i.token;
