-- Frees the permits of claims whose workers are dead, as worker $1 sees it, and returns their
-- counters. A claim stays, and its end is stored as before, if its worker was only cut off. A
-- takeover of its job takes permits anew.
--
-- It runs once for each worker that has died, since it reads all jobs that are due. A job that
-- runs is due within a minute. Jobs that another transaction has locked are left for the next call.
with recursive dead as materialized (
    select id from tickwheel.worker where until <= now() and not freed and id <> $1::int8
    order by id
    for update skip locked
), kinds as ( -- that there are, by one step in the index for each
    (select kind from tickwheel.job
        where exists (select from dead) and exists (select from tickwheel.counter where taken > 0)
        order by kind limit 1)
    union all
    select (select j.kind from tickwheel.job j where j.kind > k.kind order by j.kind limit 1)
    from kinds k where k.kind is not null
), left_behind as materialized (
    select j.* from kinds k cross join lateral (
        select j.id, j.holder from tickwheel.job j
        where j.kind = k.kind and j.due < now() + interval '1 minute' and j.state = 1
            and j.permits is not null and j.holder in (select id from dead)
    ) as j
    where k.kind is not null
), locked as materialized (
    select j.id, j.permits, coalesce(j.lane, '') as lane
    from tickwheel.job j join left_behind l on l.id = j.id
    where j.state = 1 and j.holder = l.holder and j.permits is not null
    order by j.id
    for update of j skip locked
-- permits_back.sql
), freed as (
    update tickwheel.job j set permits = null from locked l where j.id = l.id
), done as (
    update tickwheel.worker w set freed = true
    from dead d
    where w.id = d.id and w.id <> all (array(select b.holder from left_behind b where b.id not in (select l.id from locked l)))
)
select limit_id, lane from counters
