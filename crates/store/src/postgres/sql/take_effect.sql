-- Takes the mark of an effect, or says what was recorded: who comes second waits for the end of the first transaction.
insert into tidemill_effect as effect (key, job) values ($1, $2::text::uuid)
on conflict (key) do update set key = effect.key
returning effect.output::text
