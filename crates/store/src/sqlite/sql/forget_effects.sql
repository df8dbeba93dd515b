-- Forgets marks that are older than this, a page of them; answers a row for each.
delete from tidemill_effect where key in (
    select key from tidemill_effect
    where recorded_at < cast((julianday('now') - 2440587.5) * 86400000 as integer) - cast(?1 as integer)
    limit cast(?2 as integer)
)
returning key
