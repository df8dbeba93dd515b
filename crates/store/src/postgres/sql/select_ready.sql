-- Locks sheaves, in order, and says what waits in them.
select seq, ids[taken + 1:], attempt, lost from tidemill.ready where seq = any ($1::int8[]) order by seq for update;
