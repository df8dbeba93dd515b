-- Says whether this database was ever migrated; true or false, always one row.
select to_regclass('tidemill.schema_version') is not null;
