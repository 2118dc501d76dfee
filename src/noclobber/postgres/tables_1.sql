-- What the coordinator keeps in PostgreSQL: locks, writes that locks wait for, and the ledger. functions.sql
-- is the only way to it.

CREATE SCHEMA noclobber;

CREATE TABLE noclobber.schema_version (version int NOT NULL);
INSERT INTO noclobber.schema_version VALUES (1);

CREATE TABLE noclobber.lock (
  workspace      text NOT NULL,
  path           text NOT NULL,               -- From the root, without a slash at the end; '' is the root.
  token          bigint NOT NULL DEFAULT 0,   -- Rows stay for ever, so that no token is given out twice.
  version        bigint NOT NULL DEFAULT 0,   -- Rises with every change: what a judged take-over compares.
  secret_sha256  text,                        -- NULL: free. The id itself never comes here.
  deliverable_id text,
  holder         text,
  folder         text,                        -- Where its holder has it. For people only.
  acquired       timestamptz,
  expires        timestamptz,
  lease_s        int,
  renewal_s      int,
  process        jsonb,                       -- For those who can tell whether it still runs. NULL: nobody can.
  ended_call     text,                        -- The call that released it, so that a repeated one is known.
  is_wanted      boolean NOT NULL DEFAULT false,
  PRIMARY KEY (workspace, path)
) WITH (fillfactor = 50);

-- A guarded write that was let through and is not over. While it is here, nobody takes the lock over.
CREATE TABLE noclobber.write_intent (
  intent_id text PRIMARY KEY,
  workspace text NOT NULL,
  path      text NOT NULL,                    -- The lock's.
  writer    text NOT NULL,
  process   jsonb,
  deadline  timestamptz NOT NULL
);
CREATE INDEX write_intent_lock ON noclobber.write_intent (workspace, path);

CREATE TABLE noclobber.chain (
  workspace text PRIMARY KEY,
  seq       bigint NOT NULL,
  head      text NOT NULL
) WITH (fillfactor = 20);

CREATE TABLE noclobber.event (
  workspace text NOT NULL,
  seq       bigint NOT NULL,
  line      text NOT NULL,
  call_id   text,                             -- So that an append that is asked again is not made again.
  PRIMARY KEY (workspace, seq)
);
CREATE UNIQUE INDEX event_call ON noclobber.event (workspace, call_id) WHERE call_id IS NOT NULL;
