-- Ends leases all of whose jobs are settled.
delete from tidemill.lease where token = any ($1::int8[]);
