-- What the only job of a step returned.
select output from tidemill_outcome where flow = ?1 and step = ?2 and state = 4 limit 1
