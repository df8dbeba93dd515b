-- Whether any queue has a bound; a look at an empty index where none has.
select exists (select 1 from tidemill_queue where depth_max is not null)
