-- Notes that a migration was applied, in its own transaction.
insert into tidemill.schema_version (number, checksum) values ($1::int4, $2::text);
