-- Encrypts values of decided anew, unless they have changed since they were read.
update tidemill_decided
set output = ?3, follow_ups = ?4
where id = unhex(replace(?1, '-', ''))
    and output is ?5 and follow_ups is ?6 and ?2 is not null
