-- Version 7 changes functions only; they are replaced as a whole.
UPDATE noclobber.schema_version SET version = 7;
