-- Lets this server process plan all of a claim; leaves nothing behind.
select tidemill.rehearse_claim();
