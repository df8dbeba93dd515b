-- Only the result of this job is left, for as long as its key is held.
update tidemill_outcome set keyed = 2 where id = ?1
