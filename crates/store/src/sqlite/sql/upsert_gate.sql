-- Makes a gate remember.
insert into tidemill_gate (base, name, tat, shut_until, probing, good, bad, window_at, credit, opens_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
on conflict (base, name) do update
set tat = excluded.tat, shut_until = excluded.shut_until, probing = excluded.probing, good = excluded.good,
    bad = excluded.bad, window_at = excluded.window_at, credit = excluded.credit, opens_at = excluded.opens_at
