-- Encrypts values of mail anew, unless they have changed since they were read.
update tidemill_mail
set content = ?3, answer = ?4
where job = unhex(replace(?1, '-', '')) and number = ?2
    and content is ?5 and answer is ?6
