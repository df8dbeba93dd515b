-- A page of the record of acts, newest first. Every condition given must hold.
select id, at, who, credential, act, target_kind, target, detail, ended_at, result
from tidemill_audit
where (?1 is null or id < ?1)
    and (?2 is null or who = ?2) and (?3 is null or act = ?3) and (?4 is null or target = ?4)
    and (?5 is null or at >= ?5) and (?6 is null or at < ?6)
order by id desc
limit ?7
