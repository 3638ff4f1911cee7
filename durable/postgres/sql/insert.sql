-- Stores records. One that is there already, or whose key another job has, is left out:
-- what was stored is returned. One that was born longer ago than ended jobs are
-- remembered is left out, too: it may have been stored, and have ended, before.
insert into tickwheel.job (
    id, key, name, kind, payload, at, due, born, max_attempts, version, attempt, last_error, series)
select r.id, nullif(r.key, ''), nullif(r.key, ''), r.kind, coalesce(r.payload, ''), r.at, r.due,
    r.born, r.max_attempts, r.version, r.attempt, r.last_error, r.series
from unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::timestamptz[], $6::timestamptz[],
    $7::timestamptz[], $8::int4[], $9::int4[], $10::int4[], $11::text[], $12::text[])
    with ordinality
    as r(id, key, kind, payload, at, due, born, max_attempts, version, attempt, last_error, series, n)
where r.born > clock_timestamp() - $13::int8 * interval '1 microsecond'
order by r.key, r.n -- who waits for another's keys does so in one order; the first has the key
on conflict do nothing
returning id
