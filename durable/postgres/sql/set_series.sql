-- Stores schedule $1 with revision $3 if it has revision $4, 0 for none, and returns
-- whether it did, and whether it had been stored before.
with there as (
    select revision from tickwheel.series where name = $1::text for update
), stored as (
    insert into tickwheel.series as s (name, plan, revision)
    select $1::text, $2::text, $3::int8
    where coalesce((select revision from there), 0) = $4::int8
    on conflict (name) do update set plan = excluded.plan, revision = excluded.revision, changed = now()
        where s.revision = $4::int8
    returning 1
)
select exists (select from stored), exists (select from there where revision = $3::int8)
