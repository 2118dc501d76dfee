-- Sections: guarded writes on a volume that several machines have mounted.

-- One workspace is one tree of files. A second tree under the same name would be told of the first one's files.
CREATE TABLE noclobber.tree (
  workspace text PRIMARY KEY,
  tree_id   text NOT NULL
);

-- What is known of a file. Rows stay: a version that stood there once is how an old cache is recognised.
CREATE TABLE noclobber.file (
  workspace  text NOT NULL,
  path       text NOT NULL,                   -- From the root.
  version    bigint NOT NULL DEFAULT 0,       -- Rises with every section that landed here.
  head       text,                            -- What the last one left: a hash or ABSENT. NULL: nothing yet.
  former     text[] NOT NULL DEFAULT '{}',    -- Versions before that, the newest first.
  section_id text,                            -- The write that is under way. NULL: none.
  PRIMARY KEY (workspace, path)
) WITH (fillfactor = 50);

-- A write that was let through, and is on record before it happens.
CREATE TABLE noclobber.section (
  section_id text PRIMARY KEY,
  workspace  text NOT NULL,
  writer     text NOT NULL,
  process    jsonb,
  deadline   timestamptz NOT NULL,
  state      text NOT NULL,                   -- direct: one rename. open, decided, revoked: several.
  files      jsonb NOT NULL                   -- What it does: a list of {path, action, from, to}.
);
CREATE INDEX section_workspace ON noclobber.section (workspace);

-- How sections ended, for whoever asks again. Forgotten after a week.
CREATE TABLE noclobber.settled_section (
  section_id text PRIMARY KEY,
  outcome    text NOT NULL,                   -- landed, refused, revoked, or swept: never begun.
  settled    timestamptz NOT NULL
);
CREATE INDEX settled_section_age ON noclobber.settled_section (settled);

UPDATE noclobber.schema_version SET version = 2;
