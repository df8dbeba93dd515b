-- How many jobs all workers together may hold.
select coalesce(sum(reach), 0)::int8 from tidemill.worker;
