-- Encrypts values of job anew, unless they have changed since they were read.
update tidemill_job
set payload = ?3
where id = unhex(replace(?1, '-', ''))
    and payload is ?5 and ?2 is not null and ?4 is null and ?6 is null
