-- What of worker $1 is to be ended. Each request finds its job by the id. A plain join would pass all jobs: the
-- planner takes a table of requests that was always empty for one of a thousand.
select j.id
from tickwheel.cancel_request r cross join lateral (select * from tickwheel.job j where j.id = r.id limit 1) as j
where j.state = 1 and j.holder = $1::int8 and j.claim = r.claim
