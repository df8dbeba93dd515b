-- Flows whose time is over.
select id from tidemill_flow where forget_at <= ?1 order by forget_at limit ?2
