-- Ends a worker, so that others may take over what it has at once. It is forgotten when the
-- permits have been freed that it may have left: free_dead.sql, expire.sql.
update tickwheel.worker set until = now() - interval '2 days', freed = false where id = $1::int8
