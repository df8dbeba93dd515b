-- A page of flows whose time is over, behind one, with how many jobs each has, as far as that matters.
select id, forget_at, (select count(*) from (select 1 from tidemill_job where flow = tidemill_flow.id limit ?5))
from tidemill_flow
where forget_at <= ?1 and (?3 is null or (forget_at, id) > (?3, ?4))
order by forget_at, id
limit ?2
