-- The text a migration had when it was applied, as a checksum.
select checksum from tidemill_schema_version where number = ?1
