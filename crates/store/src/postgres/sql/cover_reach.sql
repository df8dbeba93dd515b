-- Every worker may hold what it holds: some was taken while nothing counted.
update tidemill.worker w set reach = tidemill.held_by(w.id, w.reach) where w.reach < tidemill.held_by(w.id, w.reach);
