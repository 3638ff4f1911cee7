-- Claims jobs for worker $1, if they have the version that was handed out and wait, or
-- their worker is dead. What this worker has claimed already, in a call whose answer was
-- lost, is its own and counts no second attempt. What is returned as gone has ended or was
-- moved. What another transaction has locked is passed over, so that it makes no other
-- late: it is neither gone nor mine, and claim -1 says that nothing is known of it.
--
-- A claim of a dead worker counts as an attempt if it was exact. Either way the job is a
-- suspect, and claimed only if that is asked exactly ($4). The attempt after the last one
-- has the number after that, however often it is claimed.
--
-- What is returned as superseded has been claimed before, and has left its key to a newer job: see finish.sql. The
-- caller ends it. One that waits, and has lost its key since it has expired, dies as any other that has expired.
--
-- Nothing is claimed if the limits and pauses are no longer of revision $5, by which the caller has told
-- the jobs that a limit covers from the others. What is between "with limits" and "end" is for
-- these alone: others have a statement without that.
with asked as (
    select * from unnest($2::text[], $3::int4[], $4::bool[]) with ordinality as a(id, version, exact, ord)
), flow_control as materialized (
    select revision = $5::int8 as known from tickwheel.flow_control
), locked as (
    select j.id, j.state, j.holder, j.attempt, j.claim, j.crashes, j.exact as was_exact, j.max_attempts, j.permits, a.ord,
        a.exact, j.version = a.version and j.state < 2 as there,
        j.flags & 1 <> 0 and j.claim > 0 and (j.state > 0 or j.key is not null or j.expires is null or j.expires > clock_timestamp()) and exists (
            select from tickwheel.job o where o.given_key = j.given_key and o.ord is not null and (o.ord, o.id) > (j.ord, j.id)) as superseded
    from tickwheel.job j join asked a on a.id = j.id
    order by j.id
    for update of j skip locked
), dead as materialized ( -- a lock, so that who takes over and who renews do not pass each other: heartbeat.sql
    select w.id
    from tickwheel.worker w
    where w.id in (select l.holder from locked l where l.state = 1 and l.holder <> $1::int8) and w.until <= now()
    order by w.id
    for share skip locked
), judged as (
    select l.*, coalesce(extract(epoch from w.until - now()), 0)::float8 as rest, -- of the holder's lease
        l.state = 1 and l.holder = $1::int8 as before,
        l.state = 1 and l.holder <> $1::int8 and (w.id is null or w.id in (select id from dead)) as orphan
    from locked l left join tickwheel.worker w on w.id = l.holder
), counted as (
    select g.id, g.before, g.exact, g.permits, g.ord,
        g.crashes + case when g.orphan then 1 else 0 end as crashes,
        least(g.attempt - case when g.orphan and not g.was_exact then 1 else 0 end, g.max_attempts) as begun
    from judged g
    where g.there and (g.before or g.state = 0 or g.orphan) and (select known from flow_control)
-- with limits
), needs as ( -- has: a dead worker's claim has left it
    select c.id, c.ord, w.limit_id, w.lane, w.limit_id = any(coalesce(c.permits, '{}')) as has
    from counted c join unnest($6::text[], $7::int8[], $8::text[]) as w(id, limit_id, lane) on w.id = c.id
    where not c.before
), counters as materialized (
    select c.*, t.most, t.gap, t.spare
    from tickwheel.counter c
    join unnest($9::int8[], $10::text[], $11::int4[], $12::int8[], $13::int8[]) as t(limit_id, lane, most, gap, spare)
        on t.limit_id = c.limit_id and t.lane = c.lane
    where exists (select from needs)
    order by c.limit_id, c.lane
    for update of c
), timed as materialized ( -- when they are locked, so that the clock does not go back
    select (extract(epoch from clock_timestamp()) * 1000000000)::int8 as ns from (select count(*) from counters) as locked
), now as materialized ( -- the arithmetic of tokens is that of driver.Take: far is its tooFar
    select c.limit_id, c.lane, c.taken, c.most, c.gap, c.spare, c.reserved_for, t.ns, c.full_at > f.most as far,
        case when c.full_at <= f.most then greatest(c.full_at, t.ns)
            when c.full_behind = 0 or c.full_behind > f.most then t.ns + c.spare + $14::int8
            else greatest(c.full_behind, t.ns) end as full_at,
        c.reserved_until > t.ns and c.reserved_until <= t.ns + 2 * $15::int8 as reserved
    from counters c cross join timed t cross join lateral (select t.ns + c.spare + 2 * (c.gap + $14::int8) as most) f
), free as materialized ( -- first: when the next token comes
    select n.*, n.full_at - n.spare as first,
        case when n.most >= 0 then n.most - n.taken - case when n.reserved_for <> $1::int8 and n.reserved then 1 else 0 end
            else 1000000 end as permits,
        case when n.gap = 0 then 1000000
            when n.full_at - n.spare > n.ns + $14::int8 then 0
            else (n.ns + $14::int8 - n.full_at + n.spare) / n.gap + 1 end as tokens
    from now n
), ranked as ( -- refused is too much where a job before needs what it does not get: it is asked for again
    select w.*, f.ns, f.gap, f.first, f.tokens,
        row_number() over (partition by w.limit_id, w.lane order by w.ord) as nth,
        w.has or coalesce(count(*) filter (where not w.has) over (partition by w.limit_id, w.lane order by w.ord) <= f.permits, false) as has_permit
    from needs w left join free f on f.limit_id = w.limit_id and f.lane = w.lane
), decided as materialized (
    select id, bool_and(has_permit and nth <= tokens) as granted, bool_and(nth <= tokens) as has_tokens,
        max(case when first + (nth - 1) * gap > ns then first + (nth - 1) * gap else 0 end) as at
    from ranked
    group by id
), grants as materialized (
    select r.limit_id, r.lane, count(*) filter (where d.granted) as n,
        count(*) filter (where d.granted and not r.has) as taken,
        coalesce(bool_or(d.has_tokens and not r.has_permit), false) as wanted
    from ranked r join decided d on d.id = r.id
    group by r.limit_id, r.lane
), counts as (
    update tickwheel.counter c
    set taken = c.taken + g.taken,
        full_at = case when f.gap = 0 or g.n = 0 or f.far then c.full_at else f.full_at end + g.n * f.gap,
        full_behind = case when f.gap = 0 or g.n = 0 then c.full_behind when f.far then f.full_at + g.n * f.gap
            when c.full_behind > 0 then least(c.full_behind, f.full_at) + g.n * f.gap else 0 end,
        last_holder = case when g.taken > 0 then $1::int8 else c.last_holder end,
        reserved_for = case when g.n > 0 and c.reserved_for = $1::int8 then null when g.n = 0 and g.wanted then $1::int8 else c.reserved_for end,
        reserved_until = case when g.n > 0 and c.reserved_for = $1::int8 then 0 when g.n = 0 and g.wanted then f.ns + $15::int8 else c.reserved_until end
    from grants g join free f on f.limit_id = g.limit_id and f.lane = g.lane
    where c.limit_id = g.limit_id and c.lane = g.lane
        and (g.n > 0 or g.wanted and c.last_holder is distinct from $1::int8 and (c.reserved_for = $1::int8 or not f.reserved))
), refused as materialized ( -- by which limit: that of the token that takes longest, or that of a permit
    select distinct on (r.id) r.id, r.limit_id,
        case when r.nth > r.tokens then greatest(r.first + g.n * r.gap - r.ns - $14::int8, 0) else $16::int8 end as rest
    from ranked r join decided d on d.id = r.id join grants g on g.limit_id = r.limit_id and g.lane = r.lane
    where d.granted is not true and (not r.has_permit or r.nth > r.tokens)
    order by r.id, r.nth > r.tokens desc, r.first + g.n * r.gap desc
-- end
), claimed as (
    update tickwheel.job j
    set state = 1, holder = $1::int8, held_until = null,
        key = case when c.exact and j.flags & 1 <> 0 then null else j.key end, -- FreeWhenBegun
        claim = j.claim + case when c.before then 0 else 1 end,
        attempt = case when c.before then j.attempt else c.begun + 1 end,
        crashes = c.crashes, exact = c.exact or c.before and j.exact
-- with limits
        , permits = case when c.before then j.permits else (select array_agg(w.limit_id) from needs w where w.id = c.id) end
-- end
    from counted c
    where j.id = c.id and (c.before or c.exact or c.crashes = 0)
-- with limits
        and (c.before or c.id in (select d.id from decided d where d.granted))
-- end
    returning j.id, j.attempt, j.claim, j.permits is not null as limited
)
select a.id,
    case when g.id is null then not exists (select from tickwheel.job j where j.id = a.id) else not g.there end as gone,
    k.id is not null as mine,
    coalesce(k.attempt, g.attempt, 0), coalesce(k.claim, g.claim, -1), coalesce(g.rest, 0),
    case when k.id is null and not a.exact then coalesce(c.crashes, 0) else 0 end as suspect,
    not (select known from flow_control) as stale, coalesce(k.limited, false) as limited,
    k.id is not null and coalesce(g.superseded, false) as superseded
-- with limits
    , case when k.id is not null then coalesce(d.at, 0) else 0 end as at, coalesce(r.limit_id, 0) as limit_id, coalesce(r.rest, 0) as rest
-- end
from asked a left join judged g on g.id = a.id left join counted c on c.id = a.id left join claimed k on k.id = a.id
-- with limits
left join decided d on d.id = a.id left join refused r on r.id = a.id
-- end
-- A job that waits has no holder whose lease would count.
