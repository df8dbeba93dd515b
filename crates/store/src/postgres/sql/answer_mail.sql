-- Answers pieces of mail, each once.
update tidemill.mail m set answer = a.answer::json
from unnest($1::uuid[], $2::int8[], $3::text[]) a(job, number, answer)
where m.job = a.job and m.number = a.number and m.answer is null;
