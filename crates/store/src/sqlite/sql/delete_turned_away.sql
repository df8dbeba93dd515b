-- Those who were turned away by a gate have been told.
delete from tidemill_turned_away where gate = ?1
