-- Streams: what jobs say while they run.
--
-- stream  one row per write, only added to, gone with its job. What one write carries is numbered `first` to `last`;
--         the next begins behind it, so two writers of one stream want the same place, and one of them tries again.

create table tidemill.stream (
    job uuid not null,
    first int8 not null,
    last int8 not null,
    bytes int8 not null, -- of the whole stream, up to here
    at timestamptz not null,
    sent uuid not null, -- sent again, it is written once
    progress text, -- the last one among the chunks
    chunks text not null, -- as JSON; as text, which may say U+0000
    primary key (job, first)
);
create index stream_progress on tidemill.stream (job, first) where progress is not null;
