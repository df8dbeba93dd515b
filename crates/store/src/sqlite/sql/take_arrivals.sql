-- What has ended of a flow and is not counted yet, apart from what runs again.
select step, sum(ok), sum(failed) from tidemill_flow_arrival where flow = ?1 group by step, failed < 0
