-- Whether the journal of a run has grown since its job lost a worker the last time.
select coalesce(
    (select e.at from tidemill_journal e where e.job = ?1 order by e.number desc limit 1)
        >= (select max(a.ended_at) from tidemill_attempt a where a.id = ?1 and a.class = 'lost'),
    0
)
