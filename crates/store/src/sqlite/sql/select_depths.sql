-- The depth of every queue that has one, and since when it is above its high watermark.
select queue, came - went, above_since from tidemill_depth where came > went or above_since is not null
