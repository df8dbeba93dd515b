-- Lets a run go on that is parked for want of a key, unless somebody has paused it.
update tidemill_run set parked = null, wake_at = null
where job = ?1 and not paused and json_extract(parked, '$.code') = 'parked_key_missing'
