-- Notes those of these runs, which ended otherwise than well, that owe something. Answers them.
insert into tidemill.debt (job)
select r.job from tidemill.run r where r.job = any ($1::uuid[]) and r.owes
on conflict (job) do nothing returning job;
