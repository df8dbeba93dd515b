-- Sets the rules of a queue.
insert into tidemill.queue (name, rules) values ($1::text, $2::text::json)
on conflict (name) do update set rules = excluded.rules;
