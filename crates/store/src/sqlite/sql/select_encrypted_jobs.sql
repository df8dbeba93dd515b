-- Rows of job after this one, in order; with their values where one is encrypted. Parameters that a table has no use for are only looked at.
select lower(hex(id)), 0,
    case when payload like '%"tdm1:%' then payload end,
    null
from tidemill_job
where id > unhex(replace(?1, '-', '')) and ?2 is not null
order by id
limit ?3
