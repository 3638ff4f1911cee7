-- Version 6 of the schema: limits and pauses, what is counted for limits, and requests to end
-- what runs. Programs of before would claim without a look at them.

-- One row. The rules are text that programs read; each claim names the revision that it was
-- judged by.
create table tickwheel.rules (
    revision int8 not null,  -- grows with each change
    ids      int8[] not null, -- of the limits
    rules    text collate "C" not null
);
insert into tickwheel.rules values (0, '{}', '');

-- What is counted for a limit, or for a lane under it. Times are nanoseconds since 1970.
-- Whoever locks several rows does so in the order of the key, after the jobs.
create table tickwheel.place (
    rule   int8 not null,
    taken  int4 not null default 0, -- jobs that are claimed and have not ended
    last   int8,                    -- the worker that took the last place
    turn   int8,                    -- the worker that has the next one
    until  int8 not null default 0, -- if it asks again before
    tokens int8 not null default 0, -- when all of the burst is there again
    lane   text collate "C" not null,
    primary key (rule, lane)
) with (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.1);

-- Requests to end a claim that runs. They stay for a day.
create table tickwheel.stop (
    id    text collate "C" primary key,
    claim int4 not null,
    asked timestamptz not null
);

-- The limits of which the claim has places; null is what most jobs have.
alter table tickwheel.job add column places int8[];

-- Whether what it has left when it died was looked for: see free_dead.sql.
alter table tickwheel.worker add column swept bool not null default false;

update tickwheel.meta set version = 6, oldest = 6;
