-- How many flows are kept, by state, and whether they are sagas.
select f.state, f.saga, count(*) from tidemill.flow f group by f.state, f.saga;
