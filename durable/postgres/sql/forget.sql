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
-- permits_back.sql
), forgotten as (
    update tickwheel.job j set holder = -9223372036854775808, permits = null, held_until = null
    from locked l
    where j.id = l.id
)
select (select count(*) from locked), c.limit_id, c.lane from (select) as one left join counters c on true
