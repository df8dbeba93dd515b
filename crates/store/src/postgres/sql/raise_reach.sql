-- A worker may hold this many jobs at once from now on; at least twice as many as before, so that this is rare.
update tidemill.worker set reach = greatest($2::int4, least(2 * reach::int8, 2147483647)::int4) where id = $1::uuid and reach < $2::int4;
