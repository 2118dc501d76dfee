-- Nobody but the owner touches the tables. Who works with noclobber may call the functions that begin a step,
-- and none of those that are parts of one.
REVOKE ALL ON SCHEMA noclobber FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA noclobber FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA noclobber FROM PUBLIC;
