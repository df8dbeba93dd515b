-- Lets one process at a time migrate; the lock ends with the transaction.
select pg_advisory_xact_lock(7238115);
