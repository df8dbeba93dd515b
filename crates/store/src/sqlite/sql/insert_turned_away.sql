-- A claim of this queue was turned away by this gate.
insert or ignore into tidemill_turned_away (gate, queue) values (?1, ?2)
