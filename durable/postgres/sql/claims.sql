-- The transactions that claim: each has the lock $1 shared until it is over.
select virtualtransaction from pg_locks
where locktype = 'advisory' and mode = 'ShareLock' and granted and objsubid = 1
    and database = (select oid from pg_database where datname = current_database())
    and classid::int8 << 32 | objid::int8 = $1::int8
