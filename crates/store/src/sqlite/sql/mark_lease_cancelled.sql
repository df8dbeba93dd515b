-- A lease that holds a job which was called off must look before it lets a job run again.
update tidemill_lease set cancels = cancels + 1 where token = ?1
