-- What callers decided for these attempts, each once: whoever takes it carries it out in this transaction.
delete from tidemill.decided d using unnest($1::uuid[], $2::int8[]) i(id, token)
where d.id = i.id and d.token = i.token
returning d.id;
