-- The queues that are above their high watermark.
select queue from tidemill_depth where above_since is not null order by queue
