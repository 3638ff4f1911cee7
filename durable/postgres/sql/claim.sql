-- Claims jobs for worker $1, if they have the version that was handed out and wait, or
-- their worker is dead. What this worker has claimed already, in a call whose answer was
-- lost, is its own and counts no second attempt. What is not returned, or returned as
-- gone, has ended or was moved.
with asked as (
    select * from unnest($2::text[], $3::int4[]) as a(id, version)
), locked as (
    select j.id, j.state, j.holder, j.attempt, j.claim, j.version = a.version and j.state < 2 as there
    from tickwheel.job j join asked a on a.id = j.id
    order by j.id
    for update of j
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
select g.id, not g.there as gone, g.there and (g.before or c.id is not null) as mine,
    coalesce(c.attempt, g.attempt), coalesce(c.claim, g.claim), g.rest
from judged g left join claimed c on c.id = g.id
-- A job that waits has no holder whose lease would count.
