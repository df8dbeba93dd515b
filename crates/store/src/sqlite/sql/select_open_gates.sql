-- The gates of a limit whose time has come.
select name from tidemill_gate where base = ?1 and opens_at <= ?2 order by opens_at limit 1000
