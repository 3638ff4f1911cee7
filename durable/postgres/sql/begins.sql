-- Whether the job that has one of the keys $1 is about to be claimed: it is due, and a record has gone into it less
-- than a second ago. It is asked before such a job is locked, or nobody could claim it.
select exists (
    select from tickwheel.job
    where key = any ($1::text[]) and state = 0 and due <= clock_timestamp()
        and filled between clock_timestamp() - interval '1 second' and clock_timestamp())
