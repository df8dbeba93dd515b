-- Forgets all but the latest entries of a schedule's history.
delete from tidemill.schedule_fire
where name = $1::text and number <= (
    select number from tidemill.schedule_fire where name = $1::text
    order by number desc limit 1 offset $2::int8
);
