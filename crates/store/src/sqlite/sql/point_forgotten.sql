-- Remembers between which slots the history of a schedule cannot say what has fired, once all but its latest entries go:
-- of its own slots, and of those that were backfilled.
update tidemill_schedule
set forgot_from = coalesce(min(forgot_from, gone.own_first), forgot_from, gone.own_first),
    forgot_until = coalesce(max(forgot_until, gone.own_last), forgot_until, gone.own_last),
    forgot_filled_from = coalesce(min(forgot_filled_from, gone.first), forgot_filled_from, gone.first),
    forgot_filled_until = coalesce(max(forgot_filled_until, gone.last), forgot_filled_until, gone.last)
from (
    select min(slot) filter (where how = 0) as own_first, max(slot) filter (where how = 0) as own_last,
        min(slot) filter (where how = 2) as first, max(slot) filter (where how = 2) as last
    from tidemill_schedule_fire
    where name = ?1 and what = 0 and (how = 0 or how = 2) and number <= (
        select number from tidemill_schedule_fire where name = ?1
        order by number desc limit 1 offset ?2
    )
) as gone
where name = ?1 and (gone.own_last is not null or gone.last is not null)
