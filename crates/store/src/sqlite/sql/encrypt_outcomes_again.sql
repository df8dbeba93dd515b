-- Encrypts values of outcome anew, unless they have changed since they were read.
update tidemill_outcome
set output = ?3
where id = unhex(replace(?1, '-', ''))
    and output is ?5 and ?2 is not null and ?4 is null and ?6 is null
