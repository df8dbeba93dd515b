-- Workers that have not beaten since.
select id from tidemill_worker where beat_at < ?1
