-- Whether the last sample was taken so long ago. What a new queue begins with is none that was taken.
select not exists (select 1 from tidemill_depth_sample where at > ?1 and came <> 0)
