-- Sets a rule by its name.
insert into tidemill.redrive_rule (name, rule) values ($1::text, $2::text::json)
on conflict (name) do update set rule = excluded.rule;
