-- Gates of a limit (?1) forget what is further ahead of the present (?2) than its rate (?3), a pause (?4) and its breaker
-- (?5) reach, each null where it has none, and are worth looking at. Answers them.
update tidemill_gate
set tat = iif(?3 is null, null, min(tat, ?2 + ?3)),
    pause_until = iif(?4 is null, null, min(pause_until, ?2 + ?4)),
    shut_until = iif(?5 is null, null, min(shut_until, ?2 + ?5)),
    probing = iif(?5 is null, 0, probing),
    probe = iif(?5 is null, null, probe),
    window_at = iif(window_at > ?2, null, window_at),
    opens_at = ?2
where base = ?1 and (
    tat > ?2 + coalesce(?3, 0) or pause_until > ?2 + coalesce(?4, 0) or shut_until > ?2 + coalesce(?5, 0)
    or window_at > ?2 or ?5 is null and probing > 0
)
returning name
