-- Version 4 of the schema: the errors of earlier attempts. Older programs may go on: what
-- they write down has its last error only.
alter table tickwheel.job add column errors jsonb; -- of {at, attempt, error}, the newest last
update tickwheel.meta set version = 4;
