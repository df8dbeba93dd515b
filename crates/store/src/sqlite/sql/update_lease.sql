-- What a lease still holds after some of its jobs were settled.
update tidemill_lease set jobs = ?2 where token = ?1
