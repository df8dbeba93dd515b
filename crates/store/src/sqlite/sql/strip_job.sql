-- A body whose result a key still keeps loses everything else.
update tidemill_job set payload = 'null', options = null where id = ?1
