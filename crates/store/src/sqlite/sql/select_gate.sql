-- What a gate remembers.
select tat, pause_until, shut_until, probing, probe, good, bad, window_at, credit, opens_at
from tidemill_gate where base = ?1 and name = ?2
