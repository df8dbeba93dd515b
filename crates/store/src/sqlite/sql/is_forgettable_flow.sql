-- Whether the time of a flow is over: it may have gone on since it was found.
select 1 from tidemill_flow where id = ?2 and forget_at <= ?1
