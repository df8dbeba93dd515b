-- Locks leases, in order, and says what they still hold and which of it was called off, and why.
select token, array(select i from unnest(ids) i where i <> all (gone)) as held, cancelled, reasons
from tidemill.lease where token = any ($1::int8[]) order by token for update;
