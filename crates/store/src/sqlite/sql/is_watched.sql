-- Whether any queue has watermarks, or is above one; two looks at empty indexes where none has.
select exists (select 1 from tidemill_queue where high_water is not null)
    or exists (select 1 from tidemill_depth where above_since is not null)
