-- What is counted for the limits that are there, without counters of which nothing is taken.
select limit_id, lane, taken, full_at, full_behind, reserved_until from tickwheel.counter
where limit_id = any((select limit_ids from tickwheel.flow_control)::int8[])
    and (taken > 0 or greatest(full_at, reserved_until) > extract(epoch from now()) * 1000000000)
