-- Stores the limits and pauses $2, whose limits are $3, with revision $1 if they have revision $4, and returns
-- whether it did, and whether they had been stored before: then nothing is written.
with there as materialized (
    select revision from tickwheel.flow_control for update
), stored as (
    update tickwheel.flow_control set revision = $1::int8, definition = $2::text, limit_ids = coalesce($3::int8[], '{}')
    where revision = $4::int8 and revision <> $1::int8 and (select count(*) from there) = 1
    returning 1
)
select exists (select from stored), exists (select from there where revision = $1::int8)
