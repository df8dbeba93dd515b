-- Ends leases that have nothing left; their permits go with them. Answers the gates that they were inside of.
delete from tidemill.lease where token = any ($1::int8[]) returning gates;
