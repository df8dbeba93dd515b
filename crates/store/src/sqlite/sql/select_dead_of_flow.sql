-- A page of the dead jobs of a flow, or of one of its steps.
select id from tidemill_outcome where flow = ?1 and (?2 is null or step = ?2) and state = 6 limit ?3
