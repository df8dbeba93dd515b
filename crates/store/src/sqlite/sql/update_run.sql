-- Pauses a run, or lets it go on, whatever stopped it.
update tidemill_run set paused = ?2, parked = case when ?2 then parked end, wake_at = case when ?2 then wake_at end
where job = ?1
