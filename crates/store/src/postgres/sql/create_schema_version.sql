-- Makes the list of applied migrations, once.
create table if not exists tidemill.schema_version (
    number int4 primary key,
    checksum text not null,
    applied_at timestamptz not null default now()
);
