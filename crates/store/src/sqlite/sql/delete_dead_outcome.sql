-- A dead job is dead no more, unless only its result is left. Whoever deletes the row sends it on its way.
delete from tidemill_outcome where id = ?1 and state = 6 and keyed < 2
