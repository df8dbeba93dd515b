-- A deadline that was looked at.
delete from tidemill_deadline where at = ?1 and id = ?2
