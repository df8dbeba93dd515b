-- A page of dead letters that fit a filter, latest death first, after a place if one is given. Those that are
-- named by id, archived or asked for as retrying are found whatever became of their jobs; others while they are dead.
select
    dead.id, dead.kind, dead.queue, dead.tenant, dead.class, dead.error, dead.fingerprint,
    dead.attempt, dead.died_at, dead.triage, dead.redrives, dead.archived,
    (select outcome.state from tidemill_outcome as outcome where outcome.id = dead.id)
from tidemill_dead as dead
where (?1 is null or lower(hex(dead.id)) in (select value from json_each(?1)))
    and (?2 is null or dead.kind = ?2)
    and (?3 is null or dead.queue = ?3)
    and (?4 is null or dead.tenant = ?4)
    and (?5 is null or dead.fingerprint = ?5)
    and (?6 is null or dead.triage = ?6)
    and (?7 is null or exists (
        select 1 from tidemill_job as job, json_each(job.options, '$.tags') as tag
        where job.id = dead.id and tag.value = ?7
    ))
    and dead.died_at >= coalesce(?8, -9223372036854775808)
    and dead.died_at < coalesce(?9, 9223372036854775807)
    and (?10 is null or instr(dead.error, ?10) > 0)
    and (?11 is null or ?13 = (
        select coalesce(
            iif(json_type(payload, ?11) = 'text', payload ->> ?11, payload -> ?11),
            iif(json_type(payload, ?12) = 'text', payload ->> ?12, payload -> ?12)
        )
        from tidemill_job where id = dead.id
    ))
    and (?1 is not null or dead.archived = ?14 and (?14 or ?6 = 2 or exists (
        select 1 from tidemill_outcome as outcome where outcome.id = dead.id and outcome.state = 6
    )))
    and (dead.died_at, dead.id) < (coalesce(?15, 9223372036854775807), coalesce(?16, x''))
order by dead.died_at desc, dead.id desc
limit ?17
