-- Whether the last sample was taken so long ago.
select not exists (select 1 from tidemill_depth_sample where at > ?1)
