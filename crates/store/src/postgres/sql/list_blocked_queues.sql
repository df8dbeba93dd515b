-- The queues of jobs that wait for another one.
select distinct j.queue from tidemill.unique_key u join tidemill.job j on j.id = u.next_id where u.next_id is not null
union select w.queue from tidemill.line_waiting w;
