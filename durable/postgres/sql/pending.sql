-- How many jobs wait; if that is more than $1, how many rows there are about, as of the last
-- vacuum.
with counted as materialized (
    select count(*) as jobs from (select from tickwheel.job where state = 0 limit $1::int4) as j
)
select case when jobs < $1::int4 then jobs
    else greatest(jobs, (select reltuples::int8 from pg_catalog.pg_class where oid = 'tickwheel.job'::regclass)) end
from counted
