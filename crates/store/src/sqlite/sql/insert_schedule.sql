-- Makes a schedule; fails when there is one of its name. Its versions begin with the time: one that had its name before
-- had smaller ones.
insert into tidemill_schedule (name, owner, version, paused, definition, next_at, made_at, changed_at)
values (?2, ?3, ?1, ?4, ?5, ?6, ?1, ?1)
