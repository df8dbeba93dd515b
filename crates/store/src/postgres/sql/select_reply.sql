-- What became of the message that was sent to a job under an id; no row: there is no such message.
select m.answer::text, exists (select from tidemill.outcome o where o.id = m.job offset 0)
from tidemill.mail m where m.job = $1::uuid and m.sent = $2::text;
