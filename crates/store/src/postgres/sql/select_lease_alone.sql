-- Locks leases as select_lease.sql does, and waits for transactions of callers that decide something under them, and for
-- entries of journals that are on their way.
select l.token, array(select i from unnest(l.ids) i where i <> all (l.gone)) as held, l.cancelled, l.reasons
from (select distinct t from unnest($1::int8[]) t order by t) t, lateral (
    select * from tidemill.lease l where l.token = t.t for update
) l;
