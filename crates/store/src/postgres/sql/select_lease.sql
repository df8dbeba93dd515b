-- Locks leases, in order, each by a look of its own; says what they still hold, and what was called off and why. Does
-- not wait for callers that decide something under them: those are about other jobs.
select l.token, array(select i from unnest(l.ids) i where i <> all (l.gone)) as held, l.cancelled, l.reasons
from (select distinct t from unnest($1::int8[]) t order by t) t, lateral (
    select * from tidemill.lease l where l.token = t.t for no key update
) l;
