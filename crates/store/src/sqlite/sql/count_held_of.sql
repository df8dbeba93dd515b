-- How many jobs of one queue are held at a gate, counted up to 100,000; a name that ends in char(31) means all gates of
-- a limit by tenant or key.
select count(*) from (
    select 1 from tidemill_ready
    where line = 2 and queue = ?2 and gate >= ?1
        and gate < iif(substr(?1, -1) = char(31), substr(?1, 1, length(?1) - 1) || char(32), ?1 || char(1))
    limit 100000
)
