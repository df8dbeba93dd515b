-- Encrypts values of run anew, unless they have changed since they were read.
update tidemill_run
set state = ?3
where job = unhex(replace(?1, '-', ''))
    and state is ?5 and ?2 is not null and ?4 is null and ?6 is null
