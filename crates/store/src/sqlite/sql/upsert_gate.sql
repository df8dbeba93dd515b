-- Makes a gate remember.
insert into tidemill_gate (
    base, name, tat, pause_until, shut_until, probing, probe, good, bad, window_at, credit, opens_at
)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
on conflict (base, name) do update
set tat = excluded.tat, pause_until = excluded.pause_until, shut_until = excluded.shut_until,
    probing = excluded.probing, probe = excluded.probe, good = excluded.good, bad = excluded.bad,
    window_at = excluded.window_at, credit = excluded.credit, opens_at = excluded.opens_at
