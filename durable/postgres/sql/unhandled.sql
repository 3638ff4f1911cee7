-- The kinds of which a job is due and waits, and no worker that lives has a handler: at
-- most $1 of them, those that are longest due, with that job.
with recursive kinds as ( -- that there are, by one step in the index for each
    (select kind from tickwheel.job order by kind limit 1)
    union all
    select (select j.kind from tickwheel.job j where j.kind > k.kind order by j.kind limit 1)
    from kinds k where k.kind is not null
), nobodys as materialized (
    select k.kind from kinds k
    where k.kind is not null
        and not exists (select from tickwheel.worker w where w.until > now() and k.kind = any(w.kinds))
)
select k.kind, o.id, o.due from nobodys k cross join lateral (
    select j.id, j.due from tickwheel.job j
    where j.kind = k.kind and j.due <= now() and j.state = 0
    order by j.due
    limit 1
) as o
order by o.due
limit $1::int4
