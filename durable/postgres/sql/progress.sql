-- How far jobs are, without those that were removed. Of a job that ended a moment ago a row of state 3 is left.
select id, state, due
from tickwheel.job
where id = any($1::text[]) and state <> 3
