-- Lets a run go on that is parked for want of a key, unless somebody has paused it; nothing if it is not so.
update tidemill.run r set parked = null, wake_at = null
where r.job = $1::uuid and not r.paused and r.parked ->> 'code' = 'parked_key_missing' returning 1;
