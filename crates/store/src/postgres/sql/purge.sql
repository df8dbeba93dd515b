-- Forgets finished jobs, but for runs that owe something: their journals are needed for that. Of a job whose unique key is still held, the result and an empty body stay.
-- A lease that still names one lets it go: without its outcome it would seem to run.
with over as materialized (
    select o.id, o.keyed from tidemill.outcome o
    where o.id = any ($1::uuid[]) and not exists (select from tidemill.debt d where d.job = o.id)
    for update
), kept as materialized (
    select v.id from over v
    where v.keyed and exists (
        select from tidemill.job j join tidemill.unique_key u on u.key = j.unique_key and u.id = j.id
        where j.id = v.id)
), stripped as (
    update tidemill.outcome set bare = true
    where id = any (array(select id from kept)) and not bare returning id
), emptied as (
    update tidemill.job set payload = 'null', options = null
    where id = any (array(select id from stripped))
), bodies as (
    delete from tidemill.job where id = any (array(select id from over except select id from kept)) returning id
), results as (
    delete from tidemill.outcome where id = any (array(select id from over except select id from kept))
    returning id, finished_at
), let_go as (
    update tidemill.lease l
    set gone = l.gone || array(
        select i from unnest(l.ids) i where i = any (array(select id from results)) and i <> all (l.gone))
    where l.claimed_at <= (select max(finished_at) from results) and l.ids && array(select id from results)
), attempts as (
    delete from tidemill.attempt where id = any (array(select id from over))
), letters as (
    delete from tidemill.dead where id = any (array(select id from over))
), notes as (
    delete from tidemill.note where id = any (array(select id from over))
), journals as (
    delete from tidemill.journal where job = any (array(select id from over))
), acts as (
    delete from tidemill.run_act where job = any (array(select id from over))
), boxes as (
    delete from tidemill.mail where job = any (array(select id from over))
), streams as (
    delete from tidemill.stream where job = any (array(select id from over))
), runs as (
    delete from tidemill.run where job = any (array(select id from over))
)
select (select count(*) from results) + (select count(*) from stripped),
    array(select id from results union all select id from stripped);
