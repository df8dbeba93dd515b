-- Notes why a flow is called off, and that its jobs are to be.
update tidemill_flow set reason = ?2, tend = 1 where id = ?1
