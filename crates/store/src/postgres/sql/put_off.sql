-- Lets a job that waits wait until another time; answers its queue, or null when it does not wait.
select tidemill.put_off($1::uuid, $2::timestamptz);
