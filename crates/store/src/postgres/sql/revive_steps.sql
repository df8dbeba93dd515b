-- Steps that were skipped wait again: their jobs have not ended after all.
delete from tidemill.outcome o using unnest($1::uuid[], $2::int4[]) i(flow, step), tidemill.job j
where j.flow = i.flow and j.step = i.step and o.id = j.id and o.state = 5 and o.step is null;
