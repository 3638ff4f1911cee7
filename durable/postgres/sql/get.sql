-- A job that is kept: a dead one until its retention is over.
select id, given_key, kind, payload, at, max_attempts, state, least(attempt, max_attempts), coalesce(last_due, due), last_error,
    coalesce(lane, ''), coalesce(priority, 0), meta, coalesce(timeout, 0), expires, errors, coalesce(flags, 0), coalesce(retain, 0), ending,
    case when state = 1 then (select w.name from tickwheel.worker w where w.id = holder) end
from tickwheel.job
where id = $1::text and (state < 2 or state <> 3 and due > now())
