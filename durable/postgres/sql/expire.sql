-- Removes at most $2 jobs, and returns how many: dead and retained jobs whose retention is over, and those that a pass of
-- sweep.sql has missed because their end was committed late. Old enough is a job that was born before $1. It also
-- removes workers that have been dead for a day, and schedules that were deleted a week ago.
--
-- A counter stays for two hours after its tokens are back: a server whose clock is ahead by less sweeps none that another
-- still needs. Else two servers that alternate would give the Burst again with each sweep.
with recursive kinds as ( -- that there are, by one step in the index for each
    (select kind from tickwheel.job order by kind limit 1)
    union all
    select (select j.kind from tickwheel.job j where j.kind > k.kind order by j.kind limit 1)
    from kinds k where k.kind is not null
), late as (
    select l.id from kinds k cross join lateral (
        select j.id from tickwheel.job j
        where j.kind = k.kind and j.due <= now() and j.state >= 2 and j.id < $1::text
            and (j.ord is null or not exists ( -- the last of its key: finish.sql
                select from tickwheel.job o where o.given_key = j.given_key and o.ord is not null and (o.ord, o.id) < (j.ord, j.id) and o.state < 2))
        order by j.due
        limit $2::int4
        for update skip locked
    ) as l
    where k.kind is not null
    limit $2::int4
), workers as (
    delete from tickwheel.worker where until < now() - interval '1 day' and freed
), counters as (
    delete from tickwheel.counter c using (
        select limit_id, lane from tickwheel.counter
        where taken = 0 and greatest(full_at, reserved_until) < extract(epoch from now() - interval '2 hours') * 1000000000
            or limit_id <> all ((select limit_ids from tickwheel.flow_control)::int8[])
        for update skip locked
    ) as o where c.limit_id = o.limit_id and c.lane = o.lane
), requests as (
    delete from tickwheel.cancel_request where asked < now() - interval '1 day'
), schedules as (
    delete from tickwheel.schedule where definition = '' and changed < now() - interval '7 days'
), gone as (
    delete from tickwheel.job j using late l where j.id = l.id
    returning j.id
)
select count(*) from gone
