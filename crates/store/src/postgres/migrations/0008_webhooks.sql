-- Webhooks: who is told of ended jobs. What tells them is a job, written by the statement that ends the other.

create table tidemill.webhook (
    id uuid primary key,
    name text collate "C" not null unique,
    webhook jsonb not null, -- where to, and of what
    secrets text not null, -- as JSON: what is signed with
    options json not null, -- of the jobs that tell it
    version int8 not null,
    created_at timestamptz not null,
    changed_at timestamptz not null
);

-- At most one row: which alerts webhooks were told of (core's `alert/book.rs`).
create table tidemill.alert_book (
    is_it boolean primary key default true check (is_it),
    version int8 not null,
    book text not null -- as JSON
);

-- Writes the jobs that tell webhooks of these ends, by the rule of core's `webhook.rs`; answers whether there are any.
-- Who calls it looks first whether there is a webhook at all, so that nobody pays who has none.
create function tidemill.tell_webhooks(ids uuid[], at timestamptz) returns boolean language plpgsql as $$
declare
    one record;
    message uuid;
    is_told boolean := false;
begin
    for one in
        select w.id::text as webhook, case
            when j.options ->> 'trace' is null then w.options
            else (w.options::jsonb || jsonb_build_object('trace', j.options ->> 'trace'))::json
        end as options, w.webhook ->> 'tenant' as tenant, s.word, json_build_object(
            'id', j.id, 'kind', j.kind, 'queue', j.queue, 'tenant', j.tenant, 'key', j.key, 'state', s.word,
            'attempt', o.attempt, 'error', o.error, 'output', case when t.is_told and not t.is_large then o.output end,
            'output_left_out', t.is_told and t.is_large) as data
        from unnest(tell_webhooks.ids) i(id), lateral (
            select * from tidemill.job j where j.id = i.id limit 1
        ) j, lateral (
            select * from tidemill.outcome o where o.id = i.id limit 1
        ) o, lateral (
            select (array['done', 'cancelled', 'dead'])[o.state - 3] as word
        ) s, tidemill.webhook w, lateral (
            select (w.webhook ->> 'output')::boolean as is_told,
                coalesce(octet_length(o.output::text) > 262144, false) as is_large
        ) t
        where j.queue <> 'tidemill:webhooks' and not (w.webhook ->> 'paused')::boolean
            and (w.webhook ->> 'tenant' is null or w.webhook ->> 'tenant' = j.tenant)
            and ((w.webhook -> 'events' = '[]' or w.webhook -> 'events' ? s.word)
                and (w.webhook -> 'kinds' = '[]' or w.webhook -> 'kinds' ? j.kind)
                and exists (
                    select from jsonb_array_elements_text(w.webhook -> 'queues') q(name)
                    where q.name = j.queue or right(q.name, 1) = '*' and starts_with(j.queue, left(q.name, -1)))
                or j.options #>> '{webhook,to}' = w.name and (
                    j.options #> '{webhook,events}' is null or (j.options #> '{webhook,events}')::jsonb ? s.word))
        order by i.id
    loop
        message := tidemill.uuid7();
        insert into tidemill.job (id, kind, queue, priority, tenant, key, sheaf, payload, options, created_at)
        values (message, 'tidemill:webhook', 'tidemill:webhooks', 2, one.tenant, one.webhook,
            tidemill.place(message, 'tidemill:webhooks', 2::int2, tell_webhooks.at, 'tidemill:webhook', one.tenant,
                one.webhook, 0::int2, 0::int2),
            json_build_object('webhook', one.webhook, 'message', message, 'type', 'job.' || one.word, 'timestamp',
                to_char(tell_webhooks.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'data', one.data),
            one.options, tell_webhooks.at);
        is_told := true;
    end loop;
    return is_told;
end $$;
