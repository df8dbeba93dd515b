-- Forgets all but the latest entries of a schedule's history.
delete from tidemill_schedule_fire
where name = ?1 and number <= (
    select number from tidemill_schedule_fire where name = ?1
    order by number desc limit 1 offset ?2
)
