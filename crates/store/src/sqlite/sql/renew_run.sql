-- A run that continues anew goes by another version, and owes nothing.
update tidemill_run set version = ?2, owes = 0 where job = ?1
