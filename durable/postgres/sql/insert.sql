-- Stores records. One that is there already, or whose key another job has, is left out:
-- what was stored is returned. For jobs without a key statements.go removes "on conflict": a
-- repeated insert fails then, and insertOnce runs the whole statement. One that was born longer ago than ended jobs are
-- remembered is left out, too: it may have been stored, and have ended, before.
insert into tickwheel.job (
    id, key, name, kind, payload, at, due, born, max_attempts, version, attempt, last_error, series,
    plan, lane, priority, meta, timeout, expires, flags)
select r.id, nullif(r.key, ''), nullif(r.key, ''), r.kind, coalesce(r.payload, ''), r.at, r.due,
    r.born, r.max_attempts, r.version, r.attempt, r.last_error, r.series,
    nullif(r.plan, ''), nullif(r.lane, ''), nullif(r.priority, 0), nullif(r.meta, '')::jsonb, nullif(r.timeout, 0), r.expires, nullif(r.flags, 0)
from unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::timestamptz[], $6::timestamptz[],
    $7::timestamptz[], $8::int4[], $9::int4[], $10::int4[], $11::text[], $12::text[],
    $13::text[], $14::text[], $15::int2[], $16::text[], $17::int8[], $18::timestamptz[], $20::int2[])
    with ordinality
    as r(id, key, kind, payload, at, due, born, max_attempts, version, attempt, last_error, series,
        plan, lane, priority, meta, timeout, expires, flags, n)
where r.born > clock_timestamp() - $19::int8 * interval '1 microsecond'
order by r.key, r.n -- who waits for another's keys does so in one order; the first has the key
on conflict do nothing
returning id
