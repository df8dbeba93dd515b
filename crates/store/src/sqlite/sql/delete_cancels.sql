-- What was called off under a lease that ends.
delete from tidemill_cancel where token = ?1
