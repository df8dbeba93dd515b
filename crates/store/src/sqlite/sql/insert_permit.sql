-- So many jobs of a lease went in.
insert into tidemill_permit (gate, token, held) values (?1, ?2, ?3)
