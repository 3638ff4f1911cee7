-- Writes ends of worker $1 down: fate 0 done, 1 again, 2 kept: dead, or with a state of 4 or 5 retained. Each is that of one
-- claim: if another worker has taken over since, it is left out, with the next
-- occurrence. One that does not count takes its attempt back. What has been there for
-- a while ($6 us) is removed at once; younger jobs are left, without what they were, so
-- that a repeated insert of theirs is known: sweep.sql has them. What another transaction has locked is left out and returned as
-- such, so that it makes no other wait: it is to be asked for again. So is the end of an
-- occurrence whose schedule has not the revision by which the end was made: it is
-- left out, and returned as changed. What is between "with limits and schedules" and "end" is for
-- claims with permits and for jobs of schedules: see claim.sql.
--
-- A job that would take its key again is done instead if a newer one of the key is there, or was and has begun.
-- Last is a job that is to be remembered for that, since an older one has not ended.
with ends as (
    select * from unnest($2::text[], $3::int4[], $4::int2[], $5::jsonb[]) as e(id, claim, fate, m)
), held as (
    select j.id, e.m, case when (e.m->>'uncounted')::bool then 1 else 0 end as less,
        j.born < clock_timestamp() - $6::int8 * interval '1 microsecond' as old,
        case when e.fate = 1 and j.flags & 1 <> 0 and exists ( -- an expired one is to leave the key: aside.sql
            select from tickwheel.job o where o.given_key = j.given_key and o.ord is not null and (o.ord, o.id) > (j.ord, j.id)
                and (o.state <> 0 or o.claim > 0 or o.expires is null or o.expires > clock_timestamp()))
            then case when j.retain > 0 then 2 else 0 end else e.fate end as fate,
        j.ord is not null and exists (
            select from tickwheel.job o where o.given_key = j.given_key and o.ord is not null and (o.ord, o.id) < (j.ord, j.id) and o.state < 2) as last
-- with limits and schedules
        , case when j.schedule <> '' and j.key = 'every/' || j.schedule and e.fate <> 1 then j.schedule end as schedule,
        j.permits, coalesce(j.lane, '') as lane
-- end
    from tickwheel.job j join ends e on e.id = j.id
    where j.state = 1 and j.holder = $1::int8 and j.claim = e.claim
    order by j.id
    for update of j skip locked
-- with limits and schedules
), schedules as materialized ( -- after the jobs, as in SetSchedule
    select s.name, s.revision
    from tickwheel.schedule s
    where s.name in (select schedule from held)
    order by s.name
    for update
-- end
), locked as materialized (
    select h.*
    from held h
-- with limits and schedules
    left join schedules s on s.name = h.schedule
    where h.schedule is null or coalesce(s.revision, 0) = coalesce((h.m->>'revision')::int8, 0)
-- permits_back.sql
), lasts as (
    update tickwheel.schedule s set last = (l.m->>'occurred')::timestamptz
    from locked l where l.schedule = s.name and l.m->>'occurred' is not null
-- end
), again as (
    update tickwheel.job j
    set state = 0, holder = null, key = j.given_key, due = (l.m->>'at')::timestamptz, first_born = case when j.given_key is not null then (l.m->>'at')::timestamptz end, version = j.version + 1,
        last_error = coalesce(l.m->>'error', ''), errors = (l.m->>'errors')::jsonb, attempt = j.attempt - l.less, crashes = 0, exact = false
-- with limits and schedules
        , permits = null
-- end
    from locked l where j.id = l.id and l.fate = 1
), buried as (
    update tickwheel.job j
    set state = coalesce((l.m->>'state')::int2, 2), ending = (l.m->>'ending')::jsonb, holder = null, key = null, last_due = j.due, ord = case when l.last then j.ord end,
        last_error = coalesce(l.m->>'error', ''), errors = (l.m->>'errors')::jsonb,
        attempt = least(j.attempt - l.less, j.max_attempts), crashes = 0, exact = false,
        due = clock_timestamp() + coalesce((l.m->>'keep')::int8, $7::int8) * interval '1 microsecond',
        payload = case when (l.m->>'bare')::bool then '' else j.payload end,
        signal = case when l.m->>'state' is null then j.signal end, occurrence = case when l.m->>'state' is null then j.occurrence end
-- with limits and schedules
        , permits = null
-- end
    from locked l where j.id = l.id and l.fate = 2
    returning j.id
), left_behind as (
    update tickwheel.job j
    set state = 3, holder = null, key = null, ord = case when l.last then j.ord end, payload = '', last_error = '', errors = null, occurrence = null, signal = null
-- with limits and schedules
        , permits = null
-- end
    from locked l where j.id = l.id and l.fate = 0 and (l.last or not l.old)
    returning j.id
), gone as (
    delete from tickwheel.job j using locked l where j.id = l.id and l.fate = 0 and l.old and not l.last
    returning j.id
-- with limits and schedules
), followed as ( -- the key of a next occurrence is that of the job that has ended here
    insert into tickwheel.job (
        id, key, given_key, kind, payload, at, due, born, max_attempts, version, attempt, last_error, schedule,
        occurrence, lane, priority, meta, timeout, expires, flags, retain)
    select r.id, r.m->>'key', r.m->>'key', r.kind, coalesce(r.payload, ''), r.due, r.due, r.born,
        r.max_attempts, 0, 0, '', coalesce(r.m->>'schedule', ''), r.m->>'occurrence', r.m->>'lane', (r.m->>'priority')::int2,
        (r.m->>'meta')::jsonb, (r.m->>'timeout')::int8, (r.m->>'expires')::timestamptz,
        (r.m->>'flags')::int2, (r.m->>'retain')::int8
    from unnest($8::text[], $9::text[], $10::text[], $11::bytea[], $12::timestamptz[], $13::timestamptz[], $14::int4[], $15::jsonb[])
        as r(after, id, kind, payload, due, born, max_attempts, m)
    join (select id from buried union all select id from left_behind union all select id from gone) as e
        on e.id = r.after
    on conflict do nothing
-- end
)
select id, false as busy, id not in (select id from locked) as changed from held
union all -- what is locked, if something is missing
select j.id, true, false from tickwheel.job j join ends e on e.id = j.id
where (select count(*) from held) < cardinality($2::text[])
    and j.state = 1 and j.holder = $1::int8 and j.claim = e.claim and j.id not in (select id from held)
