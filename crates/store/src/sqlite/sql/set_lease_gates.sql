-- Names the gates that jobs of a lease are inside of, so that their permits go with it.
update tidemill_lease set gates = ?2 where token = ?1
