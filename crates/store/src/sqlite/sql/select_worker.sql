-- Whether a worker is registered and was not given up.
select 1 from tidemill_worker where id = ?1
