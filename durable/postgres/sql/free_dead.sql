-- Frees the places of claims whose workers are dead, as worker $1 finds it, and returns where. Nobody may be there
-- who takes such a job over: it has no place any more then, and who does takes one. The claim
-- stays, and its end is written down as before, if its worker was only cut off.
--
-- Once for each worker that has died: the look passes all that is due. What runs is due no
-- later than soon. What another transaction has locked is left for the next call.
with recursive dead as materialized (
    select id from tickwheel.worker where until <= now() and not swept and id <> $1::int8
    order by id
    for update skip locked
), kinds as ( -- that there are, by one step in the index for each
    (select kind from tickwheel.job
        where exists (select from dead) and exists (select from tickwheel.place where taken > 0)
        order by kind limit 1)
    union all
    select (select j.kind from tickwheel.job j where j.kind > k.kind order by j.kind limit 1)
    from kinds k where k.kind is not null
), left_behind as materialized (
    select j.* from kinds k cross join lateral (
        select j.id, j.holder from tickwheel.job j
        where j.kind = k.kind and j.due < now() + interval '1 minute' and j.state = 1
            and j.places is not null and j.holder in (select id from dead)
    ) as j
    where k.kind is not null
), locked as materialized (
    select j.id, j.places, coalesce(j.lane, '') as lane
    from tickwheel.job j join left_behind l on l.id = j.id
    where j.state = 1 and j.holder = l.holder and j.places is not null
    order by j.id
    for update of j skip locked
), counters as materialized ( -- that get places back
    select p.rule, p.lane, f.n
    from tickwheel.place p join (
        select u.rule, p.lane, count(*) as n
        from locked l cross join unnest(l.places) as u(rule) join tickwheel.place p on p.rule = u.rule and p.lane in ('', l.lane)
        group by u.rule, p.lane
    ) as f on f.rule = p.rule and f.lane = p.lane
    order by p.rule, p.lane
    for update of p
), counts as (
    update tickwheel.place p set taken = p.taken - c.n from counters c where p.rule = c.rule and p.lane = c.lane
), freed as (
    update tickwheel.job j set places = null from locked l where j.id = l.id
), done as (
    update tickwheel.worker w set swept = true
    from dead d
    where w.id = d.id and w.id <> all (array(select b.holder from left_behind b where b.id not in (select l.id from locked l)))
)
select rule, lane from counters
