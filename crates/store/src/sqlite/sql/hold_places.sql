-- A job that is called off before it was let go counts as under way until its end is counted.
update tidemill_flow set jobs_open = jobs_open + 1
where id = ?1 and exists (
    select 1 from tidemill_flow_step where flow = ?1 and number = ?2 and state < 2 and opened < ?3
)
