-- Every worker may hold what it holds: some was taken while nothing counted.
update tidemill.worker w set reach = least(h.held, 2147483647)::int4
from (
    select l.worker, sum(cardinality(l.ids) - cardinality(l.gone)) as held from tidemill.lease l group by l.worker
) h
where w.id = h.worker and w.reach < h.held;
