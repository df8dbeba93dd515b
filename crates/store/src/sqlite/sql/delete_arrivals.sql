-- What has ended of a flow is counted now.
delete from tidemill_flow_arrival where flow = ?1
