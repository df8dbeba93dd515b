-- Gates of limits ($2) forget what is further ahead of the present ($1) than its rate ($3), a pause ($4) and its breaker
-- ($5) reach, each null where it has none, and are worth looking at. Answers them.
with horizon as (
    select l.base, t.present, t.present + l.rate_us * interval '1 us' as tat,
        t.present + l.pause_us * interval '1 us' as pause, t.present + l.open_us * interval '1 us' as open
    from unnest($2::text[], $3::int8[], $4::int8[], $5::int8[]) l(base, rate_us, pause_us, open_us),
        (select coalesce($1::timestamptz, now()) as present) t
), far as (
    select g.name, h.* from horizon h join tidemill.gate g on g.base = h.base
    where g.tat > coalesce(h.tat, h.present) or g.pause_until > coalesce(h.pause, h.present)
        or g.shut_until > coalesce(h.open, h.present) or g.window_at > h.present or h.open is null and g.probing > 0
    order by g.name for update of g
)
update tidemill.gate g
set tat = case when g.tat > f.tat then f.tat when f.tat is not null then g.tat end,
    pause_until = case when g.pause_until > f.pause then f.pause when f.pause is not null then g.pause_until end,
    shut_until = case when g.shut_until > f.open then f.open when f.open is not null then g.shut_until end,
    probing = case when f.open is not null then g.probing else 0 end,
    probe = case when f.open is not null then g.probe end,
    window_at = case when g.window_at <= f.present then g.window_at end,
    opens_at = f.present
from far f where g.name = f.name
returning g.name;
