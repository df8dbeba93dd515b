-- Hears what other processes tell.
listen tidemill;
