-- The health of the database in numbers: who holds vacuum back, what it has to remove, how much is logged.
select (
        select extract(epoch from max(clock_timestamp() - a.xact_start))::float8 from pg_stat_activity a
        where a.backend_xmin is not null and a.pid <> pg_backend_pid()
    ) as oldest_transaction_s,
    case when pg_is_in_recovery() then null else pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8 end as wal_bytes,
    pg_database_size(current_database())::float8 as database_bytes,
    (
        select json_object_agg(t.relname, json_build_array(t.n_live_tup, t.n_dead_tup))::text
        from pg_stat_user_tables t
        where t.schemaname = 'tidemill' and t.relname in ('ready', 'lease', 'depth_delta', 'run', 'flow', 'worker')
    ) as tables;
