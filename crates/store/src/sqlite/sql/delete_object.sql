-- Forgets an object that is nothing any more.
delete from tidemill_object where queue = ?1 and tenant = coalesce(?2, '') and key = ?3
