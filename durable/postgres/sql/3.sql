-- Version 3 of the schema: schedules; what a job has since: whose it is, its priority, what
-- it is tagged with, a timeout, and when it expires; and jobs are looked for by their kind,
-- so that a worker, which says which kinds it can run, passes no others. Null is what most
-- jobs have, and takes no room. No column that a claim, or the end of a job that is done, changes is in an index.
alter table tickwheel.job
    add column lane text collate "C",
    add column priority int2,      -- 1 high, -1 low; null: normal
    add column meta jsonb,         -- names and values, to search for by equality
    add column timeout int8,       -- of an attempt, in microseconds
    add column expires timestamptz,
    add column plan text collate "C"; -- of an occurrence: how to make the next one
create index job_meta on tickwheel.job using gin (meta jsonb_path_ops) where meta is not null;
create index job_kind on tickwheel.job (kind, due);
drop index tickwheel.job_due;
alter table tickwheel.worker add column kinds text[] collate "C" not null default '{}';

-- Schedules by name. The end of each occurrence changes last, so there is room for that
-- within the page. One that was deleted is left for a while, without a plan: the end of its
-- last occurrence looks here.
create table tickwheel.series (
    revision int8 not null,    -- grows with each change
    changed  timestamptz not null default now(),
    last     timestamptz,      -- of the last occurrence that has ended
    name     text collate "C" primary key,
    plan     text collate "C" not null -- '': deleted
) with (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.1);

update tickwheel.meta set version = 3, oldest = 3;
