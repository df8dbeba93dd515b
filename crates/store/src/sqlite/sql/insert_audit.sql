-- Writes down an act that is about to be done. Written again, it is the same.
insert into tidemill_audit (id, at, who, credential, act, target_kind, target, detail)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
on conflict (id) do nothing
