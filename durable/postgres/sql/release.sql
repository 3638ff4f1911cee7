-- Gives back jobs that worker $1 was handed (claim 0), has claimed, or may have claimed (claim -1).
-- They are not handed out for $4 us, or until the limits and pauses have another revision than $5,
-- which the worker knows. So the holder of a deferred job is -$5 in place of a worker: see
-- fetch.sql. Jobs that another transaction has locked are left out; the result is whether there are
-- any. A suspect stays one.
--
-- The claim of a dead worker stays its claim, and is deferred all the same: otherwise workers that
-- fetch in step would hand it to the one that cannot run it each time. Its held_until tells it from
-- a claim of a living worker, which has none.
--
-- A job with FreeWhenBegun whose attempt did not begin takes its key again, unless a newer one of the key is
-- there, or was and has begun: see finish.sql.
with back as (
    select * from unnest($2::text[], $3::int4[]) as b(id, claim)
), locked as (
    select j.id, j.holder = $1::int8 as own, case when j.holder = $1::int8 then j.permits end as permits, coalesce(j.lane, '') as lane,
        case when j.holder = $1::int8 and j.key is null and j.flags & 1 <> 0 then j.given_key end as left_key, j.ord
    from tickwheel.job j join back b on b.id = j.id
    where j.holder = $1::int8
        and (j.state = 0 and b.claim <= 0 or j.state = 1 and (j.claim = b.claim or b.claim = -1))
        or j.holder <> $1::int8 and j.state = 1 and b.claim = 0 and j.held_until is not null
    order by j.id
    for update of j skip locked
-- permits_back.sql
), heirs as (
    select l.id from locked l
    where l.left_key is not null and l.ord is not null and not exists (select from tickwheel.job o where o.key = l.left_key)
        and not exists (select from tickwheel.job o where o.given_key = l.left_key and o.ord is not null and (o.ord, o.id) > (l.ord, l.id))
), freed as (
    update tickwheel.job j
    set attempt = j.attempt - case when l.own and j.state = 1 then 1 else 0 end,
        state = case when l.own then 0 else j.state end,
        key = case when l.id in (select id from heirs) then l.left_key else j.key end,
        holder = case when not l.own then j.holder when $4::int8 > 0 then -$5::int8 end,
        exact = j.exact and not l.own,
        permits = case when l.own then null else j.permits end,
        held_until = case when $4::int8 > 0 then now() + $4::int8 * interval '1 microsecond' end
    from locked l
    where j.id = l.id
)
select exists (
    select from tickwheel.job j join back b on b.id = j.id
    where j.holder = $1::int8
        and (j.state = 0 and b.claim <= 0 or j.state = 1 and (j.claim = b.claim or b.claim = -1))
        and j.id not in (select id from locked)
)
