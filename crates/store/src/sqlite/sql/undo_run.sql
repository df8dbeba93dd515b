-- A run is undone from now on: it cannot go on.
update tidemill_run set undone = 1 where job = ?1
