-- Takes the advisory locks of busy keys until the transaction ends, in an order that is the same for all.
select pg_advisory_xact_lock(l.lock)
from (
    select distinct hashtextextended('tickwheel' || chr(10) || k, 0) as lock from unnest($1::text[]) as k order by lock
) as l
