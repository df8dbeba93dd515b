-- How many jobs all workers together may hold, once each of them may hold what it holds.
select coalesce(sum(greatest(w.reach, tidemill.held_by(w.id, w.reach))), 0)::int8 from tidemill.worker w;
