-- Encrypts values of stream anew, unless they have changed since they were read.
update tidemill_stream
set chunks = ?3, progress = ?4
where job = unhex(replace(?1, '-', '')) and first = ?2
    and chunks is ?5 and progress is ?6
