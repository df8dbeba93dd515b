-- The gates that jobs of a claim are inside of.
select gates from tidemill_lease where token = ?1
