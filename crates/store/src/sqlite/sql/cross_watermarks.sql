-- Crosses watermarks: every queue, or this one, that has reached the one it was not at. Each is crossed once.
update tidemill_depth set above_since = iif(above_since is null, ?1, null)
where queue in (
    select depth.queue from tidemill_depth as depth
    left join tidemill_bound as bound on bound.queue = depth.queue
    where (?2 is null or depth.queue = ?2) and iif(
        depth.above_since is null,
        bound.depth >= bound.high_water,
        bound.high_water is null or bound.depth <= bound.low_water
    )
)
returning queue, above_since is not null, came - went
