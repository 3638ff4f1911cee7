-- Frees those of the keys $1 that a job has which waits and has expired. The job dies when its turn comes. If it has
-- begun it keeps its place in the order of the key: finish.sql.
with locked as (
    select id, key from tickwheel.job
    where key = any($1::text[]) and state = 0 and expires <= clock_timestamp()
    order by key
    for update
)
update tickwheel.job j set key = null, ord = case when j.claim > 0 then j.ord end
from locked l where j.id = l.id
returning l.key
