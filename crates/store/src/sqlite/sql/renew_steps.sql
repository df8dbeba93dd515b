-- Lets steps wait for as long as they may from now on. Without a number, all of the flow.
update tidemill_flow_step set late_at = ?1 + 1000 * (joined ->> 'within_ms')
where flow = ?2 and number = coalesce(?3, number) and late_at is not null
