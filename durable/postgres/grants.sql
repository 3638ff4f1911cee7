-- Roles for the schema "tickwheel", and what each needs for its work and no more. A superuser
-- runs this before the first Migrate, and again after each; or who owns the schema's tables,
-- once the roles are there. It may be run any number of times.
--
-- Where another role owns the tables already, give them to "tickwheel_migrate" before: alter
-- table, alter function and alter schema, each with owner to.
--
-- None of the roles can log in: grant them to yours.
--
--   grant "tickwheel_add" to shop;    -- adds jobs: AddTx, AddSQL, Queue.Add, add_job
--   grant "tickwheel_work" to mails;  -- works: all that a Queue does, and twjobs
--   grant "tickwheel_migrate" to deployer;
--   alter role deployer set role "tickwheel_migrate"; -- so that this owns what is made
--
-- For a trigger, or a program in another language, the function is enough:
--
--   grant usage on schema "tickwheel" to website;
--   grant execute on function "tickwheel".add_job to website;

do $$
declare
    role text;
begin
    foreach role in array array['tickwheel_add', 'tickwheel_work', 'tickwheel_migrate'] loop
        if not exists (select from pg_catalog.pg_roles where rolname = role) then
            execute format('create role %I nologin', role);
        end if;
    end loop;
    if to_regnamespace('"tickwheel"') is null then
        create schema "tickwheel" authorization "tickwheel_migrate";
    end if;
end
$$;

grant usage on schema "tickwheel" to "tickwheel_add", "tickwheel_work";

-- What a migration makes is a worker's at once, so that no deployment waits for this file.
alter default privileges for role "tickwheel_migrate" in schema "tickwheel"
    grant select, insert, update, delete on tables to "tickwheel_work";
grant select, insert, update, delete on all tables in schema "tickwheel" to "tickwheel_work";

do $$
begin
    if to_regclass('"tickwheel".format') is null then
        return; -- before the first Migrate
    end if;
    -- The version is no worker's to change.
    revoke insert, update, delete on "tickwheel".format from "tickwheel_work";
    grant update (swept_to) on "tickwheel".format to "tickwheel_work";

    grant select on "tickwheel".format to "tickwheel_add";
    grant insert, select (id, key, given_key, ord, state, claim, expires, occurrence), update (key, ord) on "tickwheel".job to "tickwheel_add";
    grant execute on function "tickwheel".add_job to "tickwheel_add", "tickwheel_work";
end
$$;
