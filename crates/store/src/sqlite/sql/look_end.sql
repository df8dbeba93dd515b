-- The last one of the ?2 jobs made before ?1, newest first, if there are so many.
select id from tidemill_job
where id < coalesce(?1, x'ffffffffffffffffffffffffffffffffff')
order by id desc
limit 1 offset ?2 - 1
