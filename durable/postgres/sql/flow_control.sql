-- The limits and pauses.
select revision, definition from tickwheel.flow_control
