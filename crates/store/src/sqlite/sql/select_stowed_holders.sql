-- The gates of all limits that have stowaways and hold somebody.
select distinct gate from tidemill_stowaway as one
where exists (select 1 from tidemill_ready as held where held.line = 2 and held.gate = one.gate)
