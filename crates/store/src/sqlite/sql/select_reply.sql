-- What became of the message that was sent to a job under an id; no row: there is no such message.
select answer, exists (select 1 from tidemill_outcome where id = tidemill_mail.job)
from tidemill_mail where job = ?1 and sent = ?2
