-- Locks the job that has a key, and returns whether it waits and has had no attempt.
select id, due, coalesce(occurrence, ''), state = 0 and attempt = 0
from tickwheel.job
where key = $1::text
for update
