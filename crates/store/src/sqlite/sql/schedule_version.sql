-- The version of a schedule; no row when there is none.
select version from tidemill_schedule where name = ?1
