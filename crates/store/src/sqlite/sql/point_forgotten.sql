-- Remembers between which slots the history of a schedule cannot say what has fired, once all but its latest entries go.
update tidemill_schedule
set forgot_from = min(ifnull(forgot_from, gone.first), gone.first),
    forgot_until = max(ifnull(forgot_until, gone.last), gone.last)
from (
    select min(slot) as first, max(slot) as last from tidemill_schedule_fire
    where name = ?1 and what = 0 and (how = 0 or how = 2) and number <= (
        select number from tidemill_schedule_fire where name = ?1
        order by number desc limit 1 offset ?2
    )
) as gone
where name = ?1 and gone.last is not null
