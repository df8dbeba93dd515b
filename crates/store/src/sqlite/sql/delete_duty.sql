-- A duty is free again, if it is the holder's.
delete from tidemill_duty where name = ?1 and holder = ?2
