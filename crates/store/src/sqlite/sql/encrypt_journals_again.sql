-- Encrypts values of journal anew, unless they have changed since they were read.
update tidemill_journal
set entry = ?3, value = ?4
where job = unhex(replace(?1, '-', '')) and number = ?2
    and entry is ?5 and value is ?6
