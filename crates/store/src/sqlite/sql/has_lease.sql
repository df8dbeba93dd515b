-- Whether a lease is under way.
select exists (select 1 from tidemill_lease where token = ?1)
