-- What an idle worker would else ask for by statements of their own: the time, the revision of the limits and pauses, the version of
-- the schema and that which programs must know, and whether a worker has died whose permits are not freed.
select clock_timestamp(), l.revision, f.version, f.oldest,
    exists (select from tickwheel.worker where until <= now() and not freed and id <> $1::int8)
from tickwheel.flow_control l, tickwheel.format f
