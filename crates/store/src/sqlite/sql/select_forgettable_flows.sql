-- A page of flows whose time is over, behind one.
select id, forget_at from tidemill_flow
where forget_at <= ?1 and (?3 is null or (forget_at, id) > (?3, ?4))
order by forget_at, id
limit ?2
