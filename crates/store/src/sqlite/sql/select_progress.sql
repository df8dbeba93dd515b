-- The last progress that a job told of.
select progress from tidemill_stream where job = ?1 and progress is not null order by first desc limit 1
