-- Leaves only these jobs in a locked sheaf. It changes the row, so a claim with an older snapshot looks again.
update tidemill.ready set ids = $2::uuid[], taken = 0 where seq = $1::int8;
