-- Takes the mark of an effect, or says what was recorded: who comes second waits for the end of the first transaction.
insert into tidemill_effect (key, job, recorded_at)
values (?1, ?2, cast((julianday('now') - 2440587.5) * 86400000 as integer))
on conflict (key) do update set key = excluded.key
returning output
