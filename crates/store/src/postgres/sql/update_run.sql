-- Pauses a run, or lets it go on, whatever stopped it; with null one that is paused stays so.
update tidemill.run r set paused = coalesce($2::boolean, r.paused), parked = case when $2 then r.parked end,
    wake_at = case when $2 then r.wake_at end
where r.job = $1::uuid;
