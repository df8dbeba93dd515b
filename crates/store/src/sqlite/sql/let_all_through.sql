-- Whoever is held at a gate may try anew: it may be another gate now.
update tidemill_ready set priority = priority - 10, line = 1, gate = '' where line = 2
