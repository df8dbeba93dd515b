-- Forgets the mail of a run.
delete from tidemill_mail where job = ?1
