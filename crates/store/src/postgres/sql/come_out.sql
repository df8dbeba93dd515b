-- Attempts came out of these gates, so many well and so many not; answers the queues that have reason to look again.
-- The turn comes first: a claim that has it may want the rows of the gates that are judged.
select tidemill.take_turns('{}', array(select distinct split_part(g, chr(31), 1) from unnest($2::text[]) g))::text, null
union all
select tidemill.judge($1, $3, $10, $4, $5, $6, $7, $8, $9), null where cardinality($3::text[]) > 0
union all
select null, q from tidemill.come_out($1, $2) q;
