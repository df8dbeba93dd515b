-- Removes sheaves in which nothing waits any more.
delete from tidemill.ready where seq = any ($1::int8[]);
