-- One job of a lease came out.
update tidemill_permit set held = held - 1 where token = ?1 and gate = ?2
