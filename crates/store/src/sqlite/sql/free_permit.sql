-- So many jobs of a lease came out.
update tidemill_permit set held = held - ?3 where gate = ?1 and token = ?2
