-- Adds a row to a stream.
insert into tidemill_stream (job, first, last, bytes, at, sent, progress, chunks) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
