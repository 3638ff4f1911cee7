-- Claims jobs for worker $1, if they have the version that was handed out and wait, or
-- their worker is dead. What this worker has claimed already, in a call whose answer was
-- lost, is its own and counts no second attempt. What is returned as gone has ended or was
-- moved. What another transaction has locked is passed over, so that it makes no other
-- late: it is neither gone nor mine, and claim -1 says that nothing is known of it.
with asked as (
    select * from unnest($2::text[], $3::int4[]) as a(id, version)
), locked as (
    select j.id, j.state, j.holder, j.attempt, j.claim, j.version = a.version and j.state < 2 as there
    from tickwheel.job j join asked a on a.id = j.id
    order by j.id
    for update of j skip locked
), judged as (
    select l.*, coalesce(extract(epoch from w.until - now()), 0)::float8 as rest, -- of the holder's lease
        l.state = 1 and l.holder = $1::int8 as before
    from locked l left join tickwheel.worker w on w.id = l.holder
), claimed as (
    update tickwheel.job j
    set state = 1, holder = $1::int8, hand = null, claim = j.claim + 1, attempt = j.attempt + 1
    from judged g
    where j.id = g.id and g.there and not g.before and (g.state = 0 or g.rest <= 0)
    returning j.id, j.attempt, j.claim
)
select a.id,
    case when g.id is null then not exists (select from tickwheel.job j where j.id = a.id) else not g.there end as gone,
    coalesce(g.there and (g.before or c.id is not null), false) as mine,
    coalesce(c.attempt, g.attempt, 0), coalesce(c.claim, g.claim, -1), coalesce(g.rest, 0)
from asked a left join judged g on g.id = a.id left join claimed c on c.id = a.id
-- A job that waits has no holder whose lease would count.
