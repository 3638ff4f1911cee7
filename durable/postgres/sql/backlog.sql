-- The kinds of which a job is due and waits: at most $1 of them, those that are longest due,
-- with that job, how many there are, counted up to $2, and whether a worker that lives has a
-- handler.
with recursive kinds as ( -- that there are, by one step in the index for each
    (select kind from tickwheel.job order by kind limit 1)
    union all
    select (select j.kind from tickwheel.job j where j.kind > k.kind order by j.kind limit 1)
    from kinds k where k.kind is not null
), oldest as materialized (
    select k.kind, o.id, o.due from kinds k cross join lateral (
        select j.id, j.due from tickwheel.job j
        where j.kind = k.kind and j.due <= now() and j.state = 0
        order by j.due
        limit 1
    ) as o
    where k.kind is not null
    order by o.due
    limit $1::int4
)
select o.kind, o.id, o.due, (select count(*) from (
        select from tickwheel.job j where j.kind = o.kind and j.due <= now() and j.state = 0 limit $2::int4
    ) as found),
    exists (select from tickwheel.worker w where w.until > now() and o.kind = any(w.kinds))
from oldest o
order by o.due
