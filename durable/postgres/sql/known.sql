-- Which of these are there, ended or not, and the time; and those of the keys $2 that a job has which waits and
-- has expired. It runs after insert.sql, so that it sees what an earlier try has stored, whose answer was lost.
select array(select id from tickwheel.job where id = any($1::text[])), clock_timestamp(),
    array(select key from tickwheel.job where key = any($2::text[]) and state = 0 and expires <= clock_timestamp())
