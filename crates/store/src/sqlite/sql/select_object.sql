-- What the object of a queue and a key is.
select state from tidemill_object where queue = ?1 and key = ?2
