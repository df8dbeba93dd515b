-- Rows of tables that migrations fill, and that stay as full, for a look at the health of the database.
select (select count(*) from tidemill_rulebook), (select count(*) from tidemill_byte)
