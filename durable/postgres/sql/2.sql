-- Version 2 of the schema: what is known of attempts whose workers died. The new columns are
-- in no index, like all that claim and end change.
alter table tickwheel.job
    add column crashes int4 not null default 0,     -- claims that never ended, since an attempt has
    add column exact bool not null default false;   -- the claim counts as an attempt though it never ends
update tickwheel.meta set version = 2, oldest = 2;
