-- Keeps a plan, whose letters are written.
insert into tidemill_plan (id, act, filter, groups, by, why, letters, made_at, expires_at, kept_until)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
