-- Claims jobs for worker $1, if they have the version that was handed out and wait, or
-- their worker is dead. What this worker has claimed already, in a call whose answer was
-- lost, is its own and counts no second attempt. What is returned as gone has ended or was
-- moved. What another transaction has locked is passed over, so that it makes no other
-- late: it is neither gone nor mine, and claim -1 says that nothing is known of it.
--
-- A claim of a dead worker counts as an attempt if it was exact. Either way the job is a
-- suspect, and claimed only if that is asked exactly ($4). The attempt after the last one
-- has the number after that, however often it is claimed.
with asked as (
    select * from unnest($2::text[], $3::int4[], $4::bool[]) as a(id, version, exact)
), locked as (
    select j.id, j.state, j.holder, j.attempt, j.claim, j.crashes, j.exact as was_exact, j.max_attempts,
        a.exact, j.version = a.version and j.state < 2 as there
    from tickwheel.job j join asked a on a.id = j.id
    order by j.id
    for update of j skip locked
), dead as materialized ( -- a lock, so that who takes over and who renews do not pass each other: beat.sql
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
    select g.id, g.before, g.exact,
        g.crashes + case when g.orphan then 1 else 0 end as crashes,
        least(g.attempt - case when g.orphan and not g.was_exact then 1 else 0 end, g.max_attempts) as begun
    from judged g
    where g.there and (g.before or g.state = 0 or g.orphan)
), claimed as (
    update tickwheel.job j
    set state = 1, holder = $1::int8, hand = null,
        claim = j.claim + case when c.before then 0 else 1 end,
        attempt = case when c.before then j.attempt else c.begun + 1 end,
        crashes = c.crashes, exact = c.exact or c.before and j.exact
    from counted c
    where j.id = c.id and (c.before or c.exact or c.crashes = 0)
    returning j.id, j.attempt, j.claim
)
select a.id,
    case when g.id is null then not exists (select from tickwheel.job j where j.id = a.id) else not g.there end as gone,
    k.id is not null as mine,
    coalesce(k.attempt, g.attempt, 0), coalesce(k.claim, g.claim, -1), coalesce(g.rest, 0),
    case when k.id is null then coalesce(c.crashes, 0) else 0 end as suspect
from asked a left join judged g on g.id = a.id left join counted c on c.id = a.id left join claimed k on k.id = a.id
-- A job that waits has no holder whose lease would count.
