-- Encrypts values of schedule anew, unless they have changed since they were read.
update tidemill_schedule
set definition = ?3
where name = ?1
    and definition is ?5 and ?2 is not null and ?4 is null and ?6 is null
