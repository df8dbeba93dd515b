-- Sets a rule by its name.
insert or replace into tidemill_redrive_rule (name, rule) values (?1, ?2)
