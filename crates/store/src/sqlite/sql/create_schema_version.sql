-- Makes the list of applied migrations, unless it is there.
create table if not exists tidemill_schema_version (
    number integer primary key,
    checksum integer not null
)
