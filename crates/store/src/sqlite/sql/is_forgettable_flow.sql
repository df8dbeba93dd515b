-- Whether the time of a flow is over: nothing of it goes on from then on.
select 1 from tidemill_flow where id = ?2 and forget_at <= ?1
