-- Ends connections that have waited for their client for $2 us in the middle of one of the
-- statements that begin with $1, and returns how many. Such a statement keeps its rows
-- locked for as long as the server takes its client to be there, which may be for hours.
-- No setting bounds that before version 17: what is sent at once has no pause that the
-- server would take for idle. Only connections of this role are seen and can be ended.
select count(pg_terminate_backend(pid))
from pg_stat_activity
where datname = current_database() and usename = session_user and pid <> pg_backend_pid()
    and state = 'active' and wait_event_type = 'Client'
    and query_start < clock_timestamp() - $2::int8 * interval '1 microsecond'
    and strpos(query, $1::text) > 0
