-- Version 3 of the schema: jobs are looked for by their kind, so that a worker passes none
-- that it cannot run, and a worker says which kinds it can. As before, no column that claim
-- and end change is in an index.
create index job_kind on tickwheel.job (kind, due);
drop index tickwheel.job_due;
alter table tickwheel.worker add column kinds text[] collate "C" not null default '{}';
update tickwheel.meta set version = 3, oldest = 3;
