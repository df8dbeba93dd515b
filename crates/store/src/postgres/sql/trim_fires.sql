-- Forgets all but the latest entries of a schedule's history, and remembers between which slots it cannot say what
-- has fired: of its own slots, and of those that were backfilled.
with gone as (
    delete from tidemill.schedule_fire
    where name = $1::text and number <= (
        select number from tidemill.schedule_fire where name = $1::text
        order by number desc limit 1 offset $2::int8
    )
    returning slot, what, how
), forgotten as (
    select min(slot) filter (where how = 0) as own_first, max(slot) filter (where how = 0) as own_last,
        min(slot) filter (where how = 2) as first, max(slot) filter (where how = 2) as last
    from gone where what = 0 and (how = 0 or how = 2)
)
update tidemill.schedule s
set forgot_from = least(s.forgot_from, f.own_first), forgot_until = greatest(s.forgot_until, f.own_last),
    forgot_filled_from = least(s.forgot_filled_from, f.first),
    forgot_filled_until = greatest(s.forgot_filled_until, f.last)
from forgotten f where s.name = $1::text and (f.own_last is not null or f.last is not null);
