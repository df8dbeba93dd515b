-- Remembers up to which slot the history of a schedule cannot say what has fired, once all but its latest entries go.
update tidemill_schedule set forgot_until = max(ifnull(forgot_until, gone.slot), gone.slot)
from (
    select max(slot) as slot from tidemill_schedule_fire
    where name = ?1 and what = 0 and (how = 0 or how = 2) and number <= (
        select number from tidemill_schedule_fire where name = ?1
        order by number desc limit 1 offset ?2
    )
) as gone
where name = ?1 and gone.slot is not null
