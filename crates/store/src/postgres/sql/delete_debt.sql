-- What a run owed was seen to. Nothing, if that had been done before.
delete from tidemill.debt d where d.job = $1::uuid and d.number = $2::int8 returning 1;
