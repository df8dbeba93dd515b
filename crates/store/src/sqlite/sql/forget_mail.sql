-- Forgets a piece of mail that was taken, but for its id, which is known until the run continues once more.
delete from tidemill_mail where job = ?1 and number = ?2 and (sent is null or content = '"taken"')
