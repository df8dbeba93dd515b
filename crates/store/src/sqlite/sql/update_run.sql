-- Pauses a run, or lets it go on, whatever stopped it; with null one that is paused stays so.
update tidemill_run set paused = coalesce(?2, paused), parked = case when ?2 then parked end,
    wake_at = case when ?2 then wake_at end
where job = ?1
