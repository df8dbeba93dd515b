-- A lease ends; from now on its token is stale.
delete from tidemill_lease where token = ?1
