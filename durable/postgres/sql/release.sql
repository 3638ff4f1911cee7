-- Gives back what worker $1 was handed (claim 0), has claimed, or maybe has (claim -1),
-- not to be handed out for $4 us, or until the rules are others than those of revision $5, which
-- the worker knows: what was put off because of a limit
-- is free then. So its holder is, in place of a worker, less than 0: see fetch.sql. What another transaction has locked is left out; it
-- returns whether there is such a one. A suspect stays one.
--
-- What a dead worker has claimed stays its claim when it is given back, and is put off all
-- the same: else workers that fetch in step would hand it to the one that cannot run it each
-- time. Its hand tells it from a claim of a living worker, which has none.
--
-- A job with FreeWhenBegun whose attempt did not begin takes its key again, unless another has it. Of
-- several with one key, the newest takes it.
with back as (
    select * from unnest($2::text[], $3::int4[]) as b(id, claim)
), locked as (
    select j.id, j.holder = $1::int8 as own, j.places, coalesce(j.lane, '') as lane,
        case when j.holder = $1::int8 and j.key is null and j.flags & 1 <> 0 then j.name end as left_key, j.born
    from tickwheel.job j join back b on b.id = j.id
    where j.holder = $1::int8
        and (j.state = 0 and b.claim <= 0 or j.state = 1 and (j.claim = b.claim or b.claim = -1))
        or j.holder <> $1::int8 and j.state = 1 and b.claim = 0 and j.hand is not null
    order by j.id
    for update of j skip locked
), counters as materialized ( -- that get places back
    select p.rule, p.lane, f.n
    from tickwheel.place p join (
        select u.rule, p.lane, count(*) as n
        from locked l cross join unnest(l.places) as u(rule) join tickwheel.place p on p.rule = u.rule and p.lane in ('', l.lane)
        where l.own
        group by u.rule, p.lane
    ) as f on f.rule = p.rule and f.lane = p.lane
    order by p.rule, p.lane
    for update of p
), counts as (
    update tickwheel.place p set taken = p.taken - c.n from counters c where p.rule = c.rule and p.lane = c.lane
), heirs as (
    select distinct on (l.left_key) l.id from locked l
    where l.left_key is not null and not exists (select from tickwheel.job o where o.key = l.left_key)
    order by l.left_key, l.born desc, l.id
), freed as (
    update tickwheel.job j
    set attempt = j.attempt - case when l.own and j.state = 1 then 1 else 0 end,
        state = case when l.own then 0 else j.state end,
        key = case when l.id in (select id from heirs) then l.left_key else j.key end,
        holder = case when not l.own then j.holder when $4::int8 > 0 then -$5::int8 end,
        exact = j.exact and not l.own,
        places = case when l.own then null else j.places end,
        hand = case when $4::int8 > 0 then now() + $4::int8 * interval '1 microsecond' end
    from locked l
    where j.id = l.id
)
select exists (
    select from tickwheel.job j join back b on b.id = j.id
    where j.holder = $1::int8
        and (j.state = 0 and b.claim <= 0 or j.state = 1 and (j.claim = b.claim or b.claim = -1))
        and j.id not in (select id from locked)
)
