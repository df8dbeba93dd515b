-- Records what an effect came to, once, in the transaction that took its mark.
update tidemill_effect
set output = ?2, recorded_at = cast((julianday('now') - 2440587.5) * 86400000 as integer)
where key = ?1 and output is null
returning key
