-- How many flows are kept, by state, and whether they are sagas.
select state, saga, count(*) from tidemill_flow group by state, saga
