-- Where the recovery ended with which the server has started, if there was one, and up to where its log is kept now. Without
-- synchronous_commit what is acknowledged need not be kept: then up to where it is written.
select (pg_last_wal_replay_lsn() - '0/0')::int8,
    (case when current_setting('synchronous_commit') = 'off' then pg_current_wal_insert_lsn() else pg_current_wal_flush_lsn() end - '0/0')::int8
