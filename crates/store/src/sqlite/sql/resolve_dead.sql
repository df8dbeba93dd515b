-- Lets a dead job count as done; answers the attempts it took.
update tidemill_outcome set state = 4, output = coalesce(?2, 'null'), error = null where id = ?1 and state = 6
returning attempt
