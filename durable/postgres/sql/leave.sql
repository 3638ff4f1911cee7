-- Ends a worker, so that others may take over what it has at once.
delete from tickwheel.worker where id = $1::int8
