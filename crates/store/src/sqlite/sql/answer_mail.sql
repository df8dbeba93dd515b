-- Answers a piece of mail, once.
update tidemill_mail set answer = ?3 where job = ?1 and number = ?2 and answer is null
