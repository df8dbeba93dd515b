-- A worker may hold this many jobs at once from now on; at least twice as many as before, so that this is rare.
update tidemill_worker set reach = max(?2, 2 * reach) where id = ?1 and reach < ?2
