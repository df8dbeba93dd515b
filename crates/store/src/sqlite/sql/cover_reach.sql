-- Every worker may hold what it holds: some was taken while nothing counted.
update tidemill_worker set reach = held.jobs
from (select worker, sum(length(jobs)) / 20 as jobs from tidemill_lease group by worker) as held
where held.worker = id and reach < held.jobs
