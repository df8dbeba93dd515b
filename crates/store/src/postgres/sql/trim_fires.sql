-- Forgets all but the latest entries of a schedule's history, and remembers between which slots it cannot say what
-- has fired.
with gone as (
    delete from tidemill.schedule_fire
    where name = $1::text and number <= (
        select number from tidemill.schedule_fire where name = $1::text
        order by number desc limit 1 offset $2::int8
    )
    returning slot, what, how
), forgotten as (
    select min(slot) as first, max(slot) as last from gone where what = 0 and (how = 0 or how = 2)
)
update tidemill.schedule s
set forgot_from = least(s.forgot_from, f.first), forgot_until = greatest(s.forgot_until, f.last)
from forgotten f where s.name = $1::text and f.last is not null;
