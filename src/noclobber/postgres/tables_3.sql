-- Claims: a coding agent's host is about to write a file of a shared volume itself.

CREATE TABLE noclobber.claim (
  workspace    text NOT NULL,
  path         text NOT NULL,                 -- From the root.
  claim_id     text NOT NULL,
  owner        text NOT NULL,                 -- The agent: host, session and subagent.
  call_id      text NOT NULL,
  seen         text NOT NULL,                 -- What stood there when it was claimed: a hash or ABSENT.
  file_version bigint NOT NULL,               -- What the file's row had then.
  claimed      timestamptz NOT NULL,
  take_over    timestamptz NOT NULL,          -- From then on whoever finds the file as it was may write.
  expires      timestamptz NOT NULL,
  PRIMARY KEY (workspace, path)
);

-- It asks about claims now, and has one parameter more.
DROP FUNCTION IF EXISTS noclobber.begin_section(text, text, text, jsonb, text, text, text, jsonb, jsonb, float8);

UPDATE noclobber.schema_version SET version = 3;
