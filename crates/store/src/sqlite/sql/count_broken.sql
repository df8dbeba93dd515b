-- How many gates are shut because too much failed; a name that ends in char(31) means all gates of a limit by tenant or
-- key.
select count(*) from tidemill_gate
where base = ?1 and probing > 0 and name >= ?2
    and name < iif(substr(?2, -1) = char(31), substr(?2, 1, length(?2) - 1) || char(32), ?2 || char(1))
