-- Settles attempts that finished well, each only if its lease is still there and has not let it go.
-- $9 are leases that stay, $10 those whose last job this is, $11 those that were settled to the end before.
-- Leases are locked first, by token as a rescue does, so that a rescue either waits for this or makes it stale; each
-- by a look of its own: to sort what `any` finds, a plan may walk the whole index, and most of that may be dead.
-- $18 to $20 are entries of journals that are written with it, $21 runs that begin with it and $22 their versions.
-- $13 to $15 are permits of leases that stay, one for each job and gate; those of the others go with their lease.
-- Carries flows on where that is plain and nobody is waited for; answers, beside the jobs, the flows that are left, the
-- queues in which jobs wait now, and the flows that are over. Tells webhooks, if there are any at all.
with valid as materialized (
    select l.token, l.gone
    from (select distinct t from unnest($9::int8[] || $10::int8[] || $11::int8[]) t order by t) t, lateral (
        select l.token, l.gone from tidemill.lease l where l.token = t.t for no key update
    ) l
), closed as (
    delete from tidemill.lease where token = any ($10 || $11)
), done as (
    insert into tidemill.outcome (
        id, queue, state, attempt, lost, token, worker, finished_at, retain_ms, keyed, output, flow, step)
    select i.id, i.queue, 4, i.attempt, i.lost, i.token, $2::uuid, coalesce($1::timestamptz, now()), i.retain_ms,
        false, i.output::json, i.flow, i.step
    from unnest($3::uuid[], $4::text[], $5::int8[], $6::int2[], $7::int2[], $8::text[], $12::int8[],
        $16::uuid[], $17::int4[])
        i(id, queue, token, attempt, lost, output, retain_ms, flow, step)
    join valid v on v.token = i.token and i.id <> all (v.gone)
    on conflict (id) do nothing
    returning id, flow, step
), journaled as (
    insert into tidemill.journal (job, number, at, entry)
    select e.job, e.number, coalesce($1, now()), e.entry::json
    from unnest($18::uuid[], $19::int4[], $20::text[]) e(job, number, entry) join done d on d.id = e.job
    on conflict (job, number) do nothing
), begun as (
    insert into tidemill.run (job, began_at, version)
    select b.job, coalesce($1, now()), b.version
    from unnest($21::uuid[], $22::text[]) b(job, version) join done d on d.id = b.job
    on conflict (job) do nothing
), leaving as materialized (
    select array_agg(f.gate) as gates, array_agg(f.gate || chr(30) || f.token) as permits, array_agg(f.number) as numbers
    from (
        select g.gate, g.token, count(*)::int4 as number
        from unnest($13::uuid[], $14::int8[], $15::text[]) g(id, token, gate) join done d on d.id = g.id
        group by g.gate, g.token
    ) f
), freed as (
    -- By arrays: a join that was planned while the table was empty would walk all of it.
    update tidemill.permit p set held = p.held - (
        select f.numbers[array_position(f.permits, p.gate || chr(30) || p.token)] from leaving f)
    where p.gate = any ((select f.gates from leaving f)::text[])
        and p.gate || chr(30) || p.token = any ((select f.permits from leaving f)::text[])
)
select d.id, null::uuid[], null::text[], null::uuid[] from done d
union all
select null, c.others, c.queues, c.over
from (
    select array_agg(e.flow) as flows, array_agg(e.step) as steps, array_agg(e.ok) as oks
    from (select d.flow, d.step, count(*) as ok from done d where d.step is not null group by d.flow, d.step) e
) a, lateral tidemill.carry_on(a.flows, a.steps, a.oks, coalesce($1, now())) c
where a.flows is not null
union all
select null, null, array['tidemill:webhooks'], null
from (select array_agg(d.id) as ids from done d where exists (select from tidemill.webhook)) t
where t.ids is not null and tidemill.tell_webhooks(t.ids, coalesce($1, now()));
