-- Says which of these jobs have finished, how, and with what words.
select id, state, error from tidemill.outcome where id = any ($1::uuid[]);
