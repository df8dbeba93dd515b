-- All jobs that are kept for after another one, newest first.
select next_id from tidemill_unique_key where next_id is not null order by next_id desc
