-- Tells other processes; sent outside of every transaction that writes, because NOTIFY takes a global lock.
select pg_notify('tidemill', hint) from unnest($1::text[]) hint;
