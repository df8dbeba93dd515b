-- When the clock opens the next gate of a limit.
select min(opens_at) from tidemill_gate where base = ?1 and opens_at is not null
