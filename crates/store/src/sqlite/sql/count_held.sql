-- How many are held at a gate; a name that ends in char(31) means all gates of a limit by tenant or key.
select count(*) from tidemill_ready
where line = 2 and gate >= ?1
    and gate < iif(substr(?1, -1) = char(31), substr(?1, 1, length(?1) - 1) || char(32), ?1 || char(1))
