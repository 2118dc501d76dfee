-- Version 8 believes less of what a client says, and nothing of a clock that is set.

-- What the clock of leases said when somebody looked last (functions.sql, `steady_`). One row.
CREATE TABLE noclobber.steady (
  started    timestamptz NOT NULL,            -- Of the server that `reading` is from.
  is_counted boolean NOT NULL,                -- True: it was the clock for people, and is not believed.
  reading    float8 NOT NULL,                 -- Seconds.
  moment     timestamptz NOT NULL             -- What leases are counted from.
);
INSERT INTO noclobber.steady VALUES ('epoch', true, 0, clock_timestamp());

ALTER TABLE noclobber.lock ADD COLUMN taken timestamptz;  -- When, by that clock; `acquired` is for people.
UPDATE noclobber.lock SET taken = acquired;

UPDATE noclobber.schema_version SET version = 8;
