-- How many jobs wait for a slot or the clock, counted up to ?1.
select count(*) from (select 1 from tidemill_ready limit ?1)
