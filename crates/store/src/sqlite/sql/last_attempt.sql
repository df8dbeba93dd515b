-- The latest attempt of a job, which says where its ready row stands, and the latest error.
select
    token, worker, coalesce(moved_at, next_at),
    (
        select error from tidemill_attempt
        where id = ?1 and error is not null order by token desc limit 1
    )
from tidemill_attempt
where id = ?1
order by token desc
limit 1
