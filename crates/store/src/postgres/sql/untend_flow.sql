-- A flow has been tended: nothing of it is to be opened or called off any more. Its lock is held.
update tidemill.flow f set tend = false
where f.id = $1::uuid and not exists (
    select from tidemill.flow_step s where s.flow = f.id and (s.state = 1 and f.at_once is null or s.call_off and s.state < 3))
returning true;
