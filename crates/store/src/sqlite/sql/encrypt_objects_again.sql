-- Encrypts values of object anew, unless they have changed since they were read.
with spot as (
    select substr(?1, 1, instr(?1, char(31)) - 1) as queue, substr(?1, instr(?1, char(31)) + 1) as rest
)
update tidemill_object
set state = ?3
where queue = (select spot.queue from spot)
    and tenant = (select substr(spot.rest, 1, instr(spot.rest, char(31)) - 1) from spot)
    and key = (select substr(spot.rest, instr(spot.rest, char(31)) + 1) from spot)
    and state is ?5 and ?2 is not null and ?4 is null and ?6 is null
