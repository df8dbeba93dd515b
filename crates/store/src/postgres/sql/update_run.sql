-- Pauses a run, or lets it go on, whatever stopped it.
update tidemill.run r set paused = $2::boolean, parked = case when $2 then r.parked end,
    wake_at = case when $2 then r.wake_at end
where r.job = $1::uuid;
