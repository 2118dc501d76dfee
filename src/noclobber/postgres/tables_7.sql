-- Version 7 changes functions only; they are replaced as a whole.

-- It takes several locks of its caller now.
DROP FUNCTION IF EXISTS noclobber.begin_section(text, text, text, jsonb, text, text, text, jsonb, jsonb, float8, text);

UPDATE noclobber.schema_version SET version = 7;
