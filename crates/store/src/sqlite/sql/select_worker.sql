-- Whether a worker is registered and was not given up, and how long it may be silent if it says so itself.
select lease_us from tidemill_worker where id = ?1
