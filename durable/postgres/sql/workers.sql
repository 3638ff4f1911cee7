-- The workers that live, and those dead ones that have jobs: how many, and when the first of
-- these was due, the first $1 kinds of each worker, and how many kinds it has. What runs is
-- due no later than soon.
with recursive kinds as ( -- that there are, by one step in the index for each
    (select kind from tickwheel.job order by kind limit 1)
    union all
    select (select j.kind from tickwheel.job j where j.kind > k.kind order by j.kind limit 1)
    from kinds k where k.kind is not null
), running as (
    select j.holder, count(*) as jobs, min(j.due) as since
    from kinds k cross join lateral (
        select holder, due from tickwheel.job j
        where j.kind = k.kind and j.due < now() + interval '1 minute' and j.state = 1
    ) as j
    where k.kind is not null
    group by j.holder
)
select w.name, w.until, coalesce(r.jobs, 0), r.since, w.kinds[1:$1::int4], cardinality(w.kinds)
from tickwheel.worker w left join running r on r.holder = w.id
where w.until > now() or r.jobs > 0
order by w.name
