-- Shuts gates for a while: the other side asked for it. The longest pause counts.
insert into tidemill.gate as x (name, base, pause_until, opens_at)
select s.gate, split_part(s.gate, chr(31), 1), s.until, s.until
from (
    select g.gate, max(coalesce($1::timestamptz, now()) + g.delay_us * interval '1 us') as until
    from unnest($2::text[], $3::int8[]) g(gate, delay_us) group by g.gate order by g.gate collate "C"
) s
on conflict (name) do update
set pause_until = greatest(x.pause_until, excluded.pause_until),
    opens_at = greatest(x.shut_until, x.pause_until, excluded.pause_until);
