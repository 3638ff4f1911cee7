-- Which of these are there, ended or not, each with the job that it has gone into (insert_on_key.sql), and the time; and those of the keys $2 that a job has which waits and
-- has expired. It runs after insert.sql, so that it sees what an earlier try has stored, whose answer was lost.
select array(select id || ' ' || case when state = 3 then coalesce(occurrence, '') else '' end from tickwheel.job where id = any($1::text[])), clock_timestamp(),
    array(select key from tickwheel.job where key = any($2::text[]) and state = 0 and expires <= clock_timestamp())
