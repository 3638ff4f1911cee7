-- add_job compares the seconds of a timeout. To compare intervals counts 30 days for a month,
-- while extract counts 365.25 days for a year: 296 years were less than 106751 days, and
-- more than the nanoseconds that an int8 holds. The rest of the function stays that of 5.sql.
do $$
begin
    execute (
        select replace(pg_get_functiondef(p.oid),
            'timeout > interval ''106751 days''', 'extract(epoch from timeout) > 106751 * 86400.0')
        from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname = 'tickwheel' and p.proname = 'add_job');
end
$$;

update tickwheel.meta set version = 7;
