-- Which of these jobs wait behind the first of their line.
select id from tidemill.line_waiting where id = any ($1::uuid[]);
