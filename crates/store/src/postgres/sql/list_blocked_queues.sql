-- The queues of jobs that are kept for after another.
select distinct j.queue from tidemill.unique_key u join tidemill.job j on j.id = u.next_id where u.next_id is not null;
