-- The last one of the $2 jobs made before $1, newest first, if there are so many.
select j.id from tidemill.job j where j.id < $1::uuid order by j.id desc offset $2::int8 - 1 limit 1;
