-- A dead job is dead no more. Whoever deletes the row, and nobody else, sends it on its way.
delete from tidemill_outcome where id = ?1 and state = 6
