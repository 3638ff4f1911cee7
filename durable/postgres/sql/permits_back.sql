-- A part of finish.sql, forget.sql, free_dead.sql and release.sql, in place of their line "-- permits_back.sql":
-- the permits of each row of locked go back, a count of each counter.
), counters as materialized (
    select c.limit_id, c.lane, f.n
    from tickwheel.counter c join (
        select u.limit_id, c.lane, count(*) as n
        from locked l cross join unnest(l.permits) as u(limit_id) join tickwheel.counter c on c.limit_id = u.limit_id and c.lane in ('', l.lane)
        group by u.limit_id, c.lane
    ) as f on f.limit_id = c.limit_id and f.lane = c.lane
    order by c.limit_id, c.lane
    for update of c
), counts as (
    update tickwheel.counter c set taken = c.taken - n.n from counters n where c.limit_id = n.limit_id and c.lane = n.lane
