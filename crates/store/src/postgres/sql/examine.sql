-- What the server says of itself, for a look at its health.
select version() as version, current_setting('fsync') as fsync,
    current_setting('synchronous_commit') as synchronous_commit,
    current_setting('full_page_writes') as full_page_writes, pg_is_in_recovery() as in_recovery,
    clock_timestamp() as clock,
    (select max(number) from tidemill.schema_version)::int8 as schema_version,
    (select extract(epoch from max(clock_timestamp() - xact_start))::int8 from pg_stat_activity
     where backend_xmin is not null and pid <> pg_backend_pid()) as oldest_transaction_s,
    (select n_dead_tup from pg_stat_user_tables where schemaname = 'tidemill' and relname = 'ready') as ready_dead,
    (select n_live_tup from pg_stat_user_tables where schemaname = 'tidemill' and relname = 'ready') as ready_live,
    (select n_dead_tup from pg_stat_user_tables where schemaname = 'tidemill' and relname = 'lease') as lease_dead,
    (select count(*) from tidemill.rulebook) as rulebook_rows, (select count(*) from tidemill.turn) as turn_rows,
    pg_table_size('tidemill.ready') as ready_bytes, pg_table_size('tidemill.lease') as lease_bytes;
