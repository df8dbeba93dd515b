-- Waits for the turn of claims under these limits, and keeps others from it to the end of the transaction.
select tidemill.take_turns($1::text[], '{}')::text;
