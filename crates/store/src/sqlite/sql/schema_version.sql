-- The newest migration that was applied; 0 if none was.
select coalesce(max(number), 0) from tidemill_schema_version
