-- Forgets gates of a limit (?1) that remember nothing of the present (?2), nor of the window of its breaker (?3), a thousand
-- at most: one that has no row is the same. The row that is named like its limit is the only one, and stays.
delete from tidemill_gate
where base = ?1 and name in (
    select name from tidemill_gate
    where base = ?1 and name <> ?1 and probing = 0 and credit is null
        and coalesce(tat, 0) <= ?2 and coalesce(pause_until, 0) <= ?2 and coalesce(shut_until, 0) <= ?2
        and coalesce(window_at, 0) <= ?2 - ?3
        and (opens_at is null or opens_at <= ?2 and not exists (
            select 1 from tidemill_ready as ready where ready.line = 2 and ready.gate = tidemill_gate.name))
        and not exists (select 1 from tidemill_turned_away as away where away.gate = tidemill_gate.name)
    limit 1000
)
