-- Streams: what jobs say while they run.
--
-- tidemill_stream  one row per write, only added to, gone with its job. What one write carries is numbered `first` to
--                  `last`; the next begins behind it.

create table tidemill_stream (
    job blob not null,
    first integer not null,
    last integer not null,
    bytes integer not null, -- of the whole stream, up to here
    at integer not null,
    sent blob not null, -- sent again, it is written once
    progress text, -- the last one among the chunks
    chunks text not null, -- as JSON
    primary key (job, first)
) without rowid;
create index tidemill_stream_progress on tidemill_stream (job, first) where progress is not null;
