-- The version of the schema, and that which programs must know to work with it.
select version, oldest from tickwheel.format
