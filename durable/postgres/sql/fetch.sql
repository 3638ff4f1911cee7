-- Hands out to worker $1 jobs of the kinds $2 that are due in $4 us and after the moment
-- that $3 has for the kind, at most $6 of each kind, and of all 8 MiB and one of payload,
-- for $5 us. A waiting job is free if nobody holds it, or its holder is dead; a running one, if
-- its worker is dead. A worker does not see itself as dead. A deferred job is held by the
-- revision of the limits and pauses that were in force: see release.sql.
--
-- Each kind is a range of the index, so jobs of other kinds are not even passed.
with living as materialized (
    select id from tickwheel.worker where until > now() union all select $1::int8 union all select -revision from tickwheel.flow_control
), found as (
    select f.* from unnest($2::text[], $3::timestamptz[]) as k(kind, since) cross join lateral (
        select j.id, j.due, octet_length(j.payload) as bytes
        from tickwheel.job j
        where j.kind = k.kind and j.due > k.since and j.due <= now() + $4::int8 * interval '1 microsecond'
            and (j.state = 0 and (j.held_until is null or j.held_until <= now() or j.holder <> all (array(select id from living)))
                or j.state = 1 and (j.held_until is null or j.held_until <= now()) and j.holder <> all (array(select id from living)))
        order by j.due
        limit $6::int4
        for update of j skip locked
    ) as f
), picked as (
    select id from (select id, sum(bytes) over (order by due, id) - bytes as before from found) as f
    where before < 8388608
)
update tickwheel.job j
set held_until = now() + $5::int8 * interval '1 microsecond',
    holder = case j.state when 0 then $1::int8 else j.holder end
from picked p
where j.id = p.id
returning j.id, j.given_key, j.kind, j.payload, j.at, j.due, j.born, j.max_attempts, j.version,
    j.attempt - case when j.state = 1 and not j.exact then 1 else 0 end,
    j.crashes + case when j.state = 1 then 1 else 0 end,
    j.last_error, j.schedule, coalesce(j.occurrence, ''), coalesce(j.lane, ''), coalesce(j.priority, 0), j.meta,
    coalesce(j.timeout, 0), j.expires, j.errors, coalesce(j.flags, 0), coalesce(j.retain, 0), j.signal, (select count(*) from found)
