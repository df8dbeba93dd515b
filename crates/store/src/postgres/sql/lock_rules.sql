-- Waits for claims under way, and keeps others waiting to the end of the transaction: the rules change.
select tidemill.lock_rules(false);
