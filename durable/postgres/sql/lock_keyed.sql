-- Locks the job that has a key, and returns whether it waits, has had no attempt, and is
-- due after $2.
select id, state = 0 and attempt = 0 and due > $2::timestamptz
from tickwheel.job
where key = $1::text
for update
