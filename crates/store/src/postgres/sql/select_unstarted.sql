-- Which of these jobs, that were dead, stand by themselves (in no flow, with no journal) and have not started since.
select j.id from unnest($1::uuid[]) i(id), lateral (select j.id, j.flow from tidemill.job j where j.id = i.id limit 1) j
where j.flow is null
    and not exists (select from tidemill.run r where r.job = j.id)
    and not exists (
        select from tidemill.attempt a join tidemill.dead d on d.id = a.id
        where a.id = j.id and a.ended_at > d.died_at);
