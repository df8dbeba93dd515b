-- Lists the migrations that were applied, by number.
select number, checksum from tidemill.schema_version order by number;
