-- A duty is free again, if it is the holder's.
delete from tidemill.duty where name = $1::text and holder = $2::uuid;
