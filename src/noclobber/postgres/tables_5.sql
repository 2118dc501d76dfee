-- Locks above and below a folder are found by their paths, and not by looking at every lock of the workspace. For
-- that paths are in the order of their bytes, whatever language the database speaks.

ALTER TABLE noclobber.lock
  ALTER COLUMN workspace TYPE text COLLATE "C",
  ALTER COLUMN path TYPE text COLLATE "C";

-- It says what it has recorded now.
DROP FUNCTION IF EXISTS noclobber.record_lock(noclobber.lock, text);

UPDATE noclobber.schema_version SET version = 5;
