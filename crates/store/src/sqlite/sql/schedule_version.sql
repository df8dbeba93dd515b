-- The version of a schedule, and the slot for which it waits if it does not rest; no row when there is none.
select version, case when not paused then next_at end from tidemill_schedule where name = ?1
