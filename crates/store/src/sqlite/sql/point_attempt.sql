-- Where the ready row of a job with attempts stands from now on.
update tidemill_attempt set moved_at = ?2
where id = ?1 and token = (select max(token) from tidemill_attempt where id = ?1)
