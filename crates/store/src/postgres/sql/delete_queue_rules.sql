-- Takes the rules of a queue away. Whoever is held at a gate may try anew: it may be gone.
with rules as (
    delete from tidemill.queue where name = $1::text
)
update tidemill.ready set line = 1, gate = '' where line = 2;
