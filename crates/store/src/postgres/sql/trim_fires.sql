-- Forgets all but the latest entries of a schedule's history, and remembers up to which slot it cannot say what has fired.
with gone as (
    delete from tidemill.schedule_fire
    where name = $1::text and number <= (
        select number from tidemill.schedule_fire where name = $1::text
        order by number desc limit 1 offset $2::int8
    )
    returning slot, what, how
), forgotten as (
    select max(slot) as slot from gone where what = 0 and (how = 0 or how = 2)
)
update tidemill.schedule s set forgot_until = greatest(s.forgot_until, f.slot)
from forgotten f where s.name = $1::text and f.slot is not null;
