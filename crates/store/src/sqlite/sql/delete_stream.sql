-- Forgets the stream of a job.
delete from tidemill_stream where job = ?1
