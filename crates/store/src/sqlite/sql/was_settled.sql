-- Whether the attempt of this token settled this job; what the store ended instead does not count.
select exists (select 1 from tidemill_outcome where id = ?1 and token = ?2)
    or exists (
        select 1 from tidemill_attempt
        where id = ?1 and token = ?2 and started_at is not null and class is not 'lost'
    )
