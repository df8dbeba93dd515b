-- What the object of a queue, a tenant or none, and a key is.
select state from tidemill_object where queue = ?1 and tenant = coalesce(?2, '') and key = ?3
