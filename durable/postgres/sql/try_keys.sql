-- Takes those advisory locks of lock_keys.sql that nobody has, and returns whether it has all. It is for
-- transactions of callers, which may have locked rows for which those wait that have the others.
select bool_and(pg_try_advisory_xact_lock(hashtextextended('tickwheel' || chr(10) || k, 0))) from unnest($1::text[]) as k
