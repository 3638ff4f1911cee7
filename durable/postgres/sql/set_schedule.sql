-- Stores schedule $1 with revision $3 if it has revision $4, 0 for none. Returns whether it
-- did, whether it had been stored before, and the time of the last occurrence. With the
-- schedule that is forgotten. The end of an occurrence locks the schedule as well.
with there as (
    select revision, last from tickwheel.schedule where name = $1::text for update
), stored as (
    insert into tickwheel.schedule as s (name, definition, revision)
    select $1::text, $2::text, $3::int8
    where coalesce((select revision from there), 0) = $4::int8
    on conflict (name) do update set definition = excluded.definition, revision = excluded.revision, changed = now(),
            last = case when excluded.definition <> '' then s.last end
        where s.revision = $4::int8
    returning 1
)
select exists (select from stored), exists (select from there where revision = $3::int8), (select last from there)
