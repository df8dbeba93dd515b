-- Forgets a piece of mail that was taken, but for its id, which is known until the run continues once more, and for the
-- last piece, so that it is known up to where mail was read.
delete from tidemill_mail
where job = ?1 and number = ?2 and (sent is null or content = '"taken"')
    and number < (select mail from tidemill_run where job = ?1)
