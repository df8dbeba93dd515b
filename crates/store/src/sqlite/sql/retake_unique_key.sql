-- A job that runs anew holds its key again, unless another has it.
insert or ignore into tidemill_unique_key (key, id, scope) values (?1, ?2, 'unfinished')
