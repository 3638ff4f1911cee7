-- Version 8 of the schema: what waits under a key is replaced, pushed back or signaled. Programs of
-- before work beside it. They leave a key only when its job ends, and hand no signal on to their
-- handlers: so add such jobs once all workers are of this version.
alter table tickwheel.job
    add column flags int2,        -- 1: leaves its key when it begins, 2: takes signals; null is neither
    add column first timestamptz, -- when the first of those was born that were pushed back; null: this is the first
    add column signal bytea;      -- null: none came

-- add_job has what durable.Job has since. As with durable, a job that is claimed keeps its key, and
-- the function returns null; what it returns for 'keep' is the Ref of the job that waits. The rest
-- of the function, and who may call it, stay as they were.
do $$
declare
    was constant oid := (select p.oid from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname = 'tickwheel' and p.proname = 'add_job');
    acl constant aclitem[] := (select proacl from pg_proc where oid = was);
    owner constant text := (select pg_get_userbyid(proowner) from pg_proc where oid = was);
    grantee oid;
    text text := pg_get_functiondef(was);
begin
    text := regexp_replace(text, '(expires timestamp with time zone DEFAULT NULL::timestamp with time zone)',
        '\1, on_key text default null, max_wait interval default null, free_when_begun bool default null, signals bool default null');
    text := replace(text, 'first constant timestamptz := greatest(asked, born);', 'first timestamptz := greatest(asked, born);
    since timestamptz;
    waits record;');
    text := replace(text, 'else tickwheel.wrong_meta(meta)', 'when on_key not in (''refuse'', ''replace'', ''later'', ''keep'') then format(''there is no on_key %L'', on_key)
        when max_wait < interval ''0'' or max_wait > interval ''0'' and on_key is distinct from ''later'' then ''max_wait goes with later, and is not negative''
        when name is null and (coalesce(on_key, ''refuse'') <> ''refuse'' or free_when_begun or signals)
            then ''on_key, free_when_begun and signals go with a key''
        else tickwheel.wrong_meta(meta)');
    text := replace(text, '    insert into tickwheel.job (', '    for try in 1 .. 20 loop
    if on_key <> ''refuse'' then
        select j.id, coalesce(j.first, j.born) as first into waits from tickwheel.job j where j.key = add_job.key and j.state = 0 for update;
        if found and on_key = ''keep'' then
            return tickwheel.ref_of(waits.id);
        elsif found then
            update tickwheel.job j
            set state = 3, holder = null, hand = null, key = null, payload = '''', last_error = '''', errors = null, plan = null, signal = null
            where j.id = waits.id;
            if on_key = ''later'' then
                since := waits.first;
                if max_wait > interval ''0'' then
                    first := greatest(born, least(first, since + max_wait));
                end if;
            end if;
        end if;
    end if;
    insert into tickwheel.job (');
    text := replace(text, 'meta, timeout, expires)', 'meta, timeout, expires, flags, first)');
    text := replace(text, '1000000)::int8, 0), expires)', '1000000)::int8, 0), expires,
        nullif(case when free_when_begun then 1 else 0 end + case when signals then 2 else 0 end, 0), since)');
    text := replace(text, 'returning job.id into stored;', 'returning job.id into stored;
    exit when stored is not null or coalesce(on_key, ''refuse'') = ''refuse''
        or exists (select from tickwheel.job j where j.key = add_job.key and j.state = 1);
    end loop;');
    execute format('drop function %s', was::regprocedure);
    execute text;
    execute format('alter function tickwheel.add_job owner to %I', owner);
    revoke all on function tickwheel.add_job from public;
    for grantee in select distinct a.grantee from aclexplode(acl) as a where a.privilege_type = 'EXECUTE' loop
        execute format('grant execute on function tickwheel.add_job to %s', case grantee when 0 then 'public' else grantee::regrole::text end);
    end loop;
end
$$;

update tickwheel.meta set version = 8;
