-- Notes a migration in the transaction that applied it.
insert into tidemill_schema_version (number, checksum) values (?1, ?2)
