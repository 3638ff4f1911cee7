-- What is counted for the limits that are there.
select limit_id, lane, taken, full_at, full_behind, reserved_until from tickwheel.counter
where limit_id = any((select limit_ids from tickwheel.flow_control)::int8[])
