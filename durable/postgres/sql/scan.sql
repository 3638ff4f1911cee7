-- The next page of the jobs that are kept, after id $1, of state $2 (-1: any) and kind $3
-- ('': any).
select id, name, kind, payload, at, max_attempts, state, least(attempt, max_attempts), coalesce(tried, due), last_error
from tickwheel.job
where id > $1::text and (state < 2 or state = 2 and due > now())
    and ($2::int2 = -1 or state = $2::int2) and ($3::text = '' or kind = $3::text)
order by id
limit $4::int4
