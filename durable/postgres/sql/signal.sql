-- Makes the job that waits under key $1 due at $3, null for now, with the signal $2, if it takes
-- signals, has had none, and has not expired. Its holder finds it gone. It returns the job's kind, or '' if the
-- job that waited was changed meanwhile: another may wait under the key, so it is to be called again.
with told as (
    update tickwheel.job
    set due = coalesce($3::timestamptz, clock_timestamp()), signal = $2::bytea, version = version + 1, holder = null, held_until = null
    where key = $1::text and state = 0 and flags & 2 <> 0 and signal is null and (expires is null or expires > clock_timestamp())
    returning kind
)
select kind from told
union all
select '' from tickwheel.job
where key = $1::text and state = 0 and flags & 2 <> 0 and signal is null and (expires is null or expires > clock_timestamp())
    and not exists (select from told)
