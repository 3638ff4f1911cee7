-- Leaves claims that worker $1 does not know as those of a dead worker, without permits, and returns how many and the
-- counters of the permits. The holder that they get is nobody's: neither a worker nor a revision
-- of flow_control (release.sql). Jobs that another transaction has locked are left for the next
-- call.
with unknown as (
    select * from unnest($2::text[], $3::int4[]) as u(id, claim)
), locked as (
    select j.id, j.permits, coalesce(j.lane, '') as lane
    from tickwheel.job j join unknown u on u.id = j.id
    where j.state = 1 and j.holder = $1::int8 and j.claim = u.claim
    order by j.id
    for update of j skip locked
), counters as materialized ( -- that get permits back
    select c.limit_id, c.lane, f.n
    from tickwheel.counter c join (
        select u.limit_id, c.lane, count(*) as n
        from locked l cross join unnest(l.permits) as u(limit_id) join tickwheel.counter c on c.limit_id = u.limit_id and c.lane in ('', l.lane)
        group by u.limit_id, c.lane
    ) as f on f.limit_id = c.limit_id and f.lane = c.lane
    order by c.limit_id, c.lane
    for update of c
), counts as (
    update tickwheel.counter c set taken = c.taken - n.n from counters n where c.limit_id = n.limit_id and c.lane = n.lane
), forgotten as (
    update tickwheel.job j set holder = -9223372036854775808, permits = null, held_until = null
    from locked l
    where j.id = l.id
)
select (select count(*) from locked), c.limit_id, c.lane from (select) as one left join counters c on true
