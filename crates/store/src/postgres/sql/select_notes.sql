-- What was noted on these dead letters, oldest first.
select id, at, by_whom, text from tidemill.note where id = any ($1::uuid[]) order by number;
