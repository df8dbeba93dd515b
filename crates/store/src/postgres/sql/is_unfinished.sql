-- Whether a job is there and has no outcome.
select 1 from tidemill.job j
where j.id = $1::uuid and not exists (select from tidemill.outcome o where o.id = j.id);
