-- A page of what the jobs of a step returned, by id.
select id, output from tidemill_outcome
where flow = ?1 and step = ?2 and (?3 is null or id > ?3) order by id limit ?4
