-- Begins a run, or changes what it owes and shows.
insert into tidemill_run (job, began_at, version, owes, state) values (?1, ?2, coalesce(?3, ''), ?4, ?5)
on conflict (job) do update set owes = max(owes, excluded.owes), state = coalesce(excluded.state, state),
    version = case when version = '' then excluded.version else version end
