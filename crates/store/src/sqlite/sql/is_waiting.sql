-- Whether anybody is held at any gate, or was turned away by one.
select exists (select 1 from tidemill_ready where line = 2) or exists (select 1 from tidemill_turned_away)
