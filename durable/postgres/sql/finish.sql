-- Writes ends of worker $1 down: fate 0 done, 1 again, 2 buried. Each is that of one
-- claim: if another worker has taken over since, it is left out, with the next
-- occurrence. One that does not count ($10) takes its attempt back. What has been there for
-- a while ($8 us) is removed at once; younger jobs are left, without what they were, so
-- that a repeated insert of theirs is known: sweep.sql has them. What another transaction has locked is left out and returned as
-- such, so that it makes no other wait: it is to be asked for again. So is the end of an
-- occurrence whose schedule has not the revision by which the end was made ($29): it is
-- left out, and returned as changed. For what is between "with limits" and "end" see claim.sql.
with ends as (
    select * from unnest($2::text[], $3::int4[], $4::int2[], $5::timestamptz[], $6::text[], $10::bool[],
        $29::int8[], $30::timestamptz[], $31::text[])
        as e(id, claim, fate, at, error, uncounted, revision, occurred, errors)
), held as (
    select j.id, e.fate, e.at, e.error, nullif(e.errors, '')::jsonb as errors, case when e.uncounted then 1 else 0 end as less,
        j.born < clock_timestamp() - $8::int8 * interval '1 microsecond' as old,
        case when j.series <> '' and j.key = 'every/' || j.series and e.fate <> 1 then j.series end as series,
        e.revision, e.occurred
-- with limits
        , j.places, coalesce(j.lane, '') as lane
-- end
    from tickwheel.job j join ends e on e.id = j.id
    where j.state = 1 and j.holder = $1::int8 and j.claim = e.claim
    order by j.id
    for update of j skip locked
), schedules as materialized ( -- after the jobs, as in SetSchedule
    select s.name, s.revision
    from tickwheel.series s
    where s.name in (select series from held)
    order by s.name
    for update
), locked as materialized (
    select h.* from held h left join schedules s on s.name = h.series
    where h.series is null or coalesce(s.revision, 0) = h.revision
-- with limits
), counters as materialized ( -- that get places back: a count of each
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
-- end
), lasts as (
    update tickwheel.series s set last = l.occurred
    from locked l where l.series = s.name and l.occurred is not null
), again as (
    update tickwheel.job j
    set state = 0, holder = null, key = j.name, due = l.at, version = j.version + 1, last_error = l.error, errors = l.errors,
        attempt = j.attempt - l.less, crashes = 0, exact = false
-- with limits
        , places = null
-- end
    from locked l where j.id = l.id and l.fate = 1
), buried as (
    update tickwheel.job j
    set state = 2, holder = null, key = null, tried = j.due, last_error = l.error, errors = l.errors,
        attempt = least(j.attempt - l.less, j.max_attempts), crashes = 0, exact = false,
        due = clock_timestamp() + $7::int8 * interval '1 microsecond'
-- with limits
        , places = null
-- end
    from locked l where j.id = l.id and l.fate = 2
    returning j.id
), left_behind as (
    update tickwheel.job j
    set state = 3, holder = null, key = null, payload = '', last_error = '', errors = null, plan = null, signal = null
-- with limits
        , places = null
-- end
    from locked l where j.id = l.id and l.fate = 0 and not l.old
    returning j.id
), gone as (
    delete from tickwheel.job j using locked l where j.id = l.id and l.fate = 0 and l.old
    returning j.id
), followed as ( -- the key of a next occurrence is that of the job that has ended here
    insert into tickwheel.job (
        id, key, name, kind, payload, at, due, born, max_attempts, version, attempt, last_error, series,
        plan, lane, priority, meta, timeout, expires)
    select r.id, nullif(r.key, ''), nullif(r.key, ''), r.kind, coalesce(r.payload, ''), r.at, r.due,
        r.born, r.max_attempts, r.version, r.attempt, r.last_error, r.series,
        nullif(r.plan, ''), nullif(r.lane, ''), nullif(r.priority, 0), nullif(r.meta, '')::jsonb, nullif(r.timeout, 0), r.expires
    from unnest($9::text[], $11::text[], $12::text[], $13::text[], $14::bytea[], $15::timestamptz[],
        $16::timestamptz[], $17::timestamptz[], $18::int4[], $19::int4[], $20::int4[], $21::text[], $22::text[],
        $23::text[], $24::text[], $25::int2[], $26::text[], $27::int8[], $28::timestamptz[])
        as r(after, id, key, kind, payload, at, due, born, max_attempts, version, attempt, last_error, series,
            plan, lane, priority, meta, timeout, expires)
    join (select id from buried union all select id from left_behind union all select id from gone) as e
        on e.id = r.after
    on conflict do nothing
)
select id, false as busy, id not in (select id from locked) as changed from held
union all
select j.id, true, false from tickwheel.job j join ends e on e.id = j.id
where j.state = 1 and j.holder = $1::int8 and j.claim = e.claim and j.id not in (select id from held)
