-- What a gate remembers.
select tat, shut_until, probing, good, bad, window_at, credit, opens_at from tidemill_gate where base = ?1 and name = ?2
