-- A job that waits is changed, and in another band waits there; whoever could let it go meanwhile is locked out.
select tidemill.edit($1::uuid, $2::int2, $3::text::json, $4::text::json);
