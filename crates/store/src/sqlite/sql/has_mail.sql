-- Whether a run has a piece of mail that was sent under this id.
select 1 from tidemill_mail where job = ?1 and sent = ?2
