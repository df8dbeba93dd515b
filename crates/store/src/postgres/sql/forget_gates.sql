-- Forgets gates of a limit ($2) that remember nothing of the present ($1), nor of the window of its breaker ($3), a thousand
-- at most: one that has no row is the same. The row that is named like its limit is the only one, and stays. Who writes to
-- one now is not waited for, and finds it, or makes it anew. Answers how many.
with idle as (
    select g.name from tidemill.gate g, (select coalesce($1::timestamptz, now()) as present) t
    where g.base = $2::text and g.name <> g.base and g.probing = 0 and g.credit is null and g.waiters = '{}'
        and coalesce(g.tat, t.present) <= t.present and coalesce(g.pause_until, t.present) <= t.present
        and coalesce(g.shut_until, t.present) <= t.present
        and (g.window_at is null or g.window_at <= t.present - $3::int8 * interval '1 us')
        and (g.opens_at is null or g.opens_at <= t.present and not exists (
            select from tidemill.ready r where r.line = 2 and r.gate = g.name))
    limit 1000 for update of g skip locked
), gone as (
    delete from tidemill.gate g where g.name = any (array(select i.name from idle i)) returning g.name
)
select count(*) from gone;
