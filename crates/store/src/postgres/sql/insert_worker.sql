-- Announces a worker; `false`, and nothing is done, where a limit counts and the caller has not the lock of the rules ($9).
select tidemill.register($1, $2, $3, $4, $5, $6, $7, $8, $9);
