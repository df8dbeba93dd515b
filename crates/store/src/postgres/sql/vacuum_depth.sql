-- Makes the room of folded deltas free for new ones, sooner than the server would by itself.
vacuum (skip_locked) tidemill.depth_delta;
