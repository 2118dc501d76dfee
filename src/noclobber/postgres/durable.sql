-- Steps that share the disk's time.
--
-- A commit waits for the disk while it has everything locked that it touched. The end of a workspace's chain is one
-- row, so sixteen clients would wait for sixteen turns of the disk. Here a step is committed without waiting, which
-- lets the next one in, and then waits for the disk: one turn serves everybody who waits. The answer is given after
-- that, as always.
--
-- What others see may be gone after a crash, and that harms nobody: the log is kept from its beginning without a gap,
-- and flushed in its order. Whoever was answered built on what was written before its own step, so that is kept,
-- too. What was lost was told to nobody, and is asked for again. The same holds for synchronous standbys: the second
-- commit waits for them.
--
-- The second commit waits, whatever a database, a user or PGOPTIONS says of synchronous_commit: after a crash a lock that
-- was answered without it has a second holder, with the same token.
--
-- These are procedures with their caller's rights, because only such may commit; what they call has the owner's.

CREATE OR REPLACE PROCEDURE noclobber.take_lock(
  ws text, p text, secret text, wanted_id text, who text, folder_ text, lease int, process_ jsonb,
  held text[], judged jsonb, is_waiting boolean, INOUT answer jsonb
) LANGUAGE plpgsql AS $$
DECLARE done text;
BEGIN
  answer := noclobber.take(ws, p, secret, wanted_id, who, folder_, lease, process_, held, judged, is_waiting);
  -- Also if it was ours already: whoever took it for us may have been lost before it was on the disk.
  IF answer->>'outcome' = 'taken' THEN
    done := pg_catalog.set_config('synchronous_commit', 'off', true);
    COMMIT;
    done := pg_catalog.set_config('synchronous_commit', 'on', true);
    done := pg_catalog.pg_logical_emit_message(true, 'noclobber', '');
  END IF;
END $$;

CREATE OR REPLACE PROCEDURE noclobber.renew_lock(ws text, p text, secret text, lease int, INOUT answer jsonb)
LANGUAGE plpgsql AS $$
DECLARE done text;
BEGIN
  answer := noclobber.renew(ws, p, secret, lease);
  done := pg_catalog.set_config('synchronous_commit', 'off', true);
  COMMIT;
  done := pg_catalog.set_config('synchronous_commit', 'on', true);
  done := pg_catalog.pg_logical_emit_message(true, 'noclobber', '');
END $$;

CREATE OR REPLACE PROCEDURE noclobber.append_event(ws text, body text, id_of_call text, INOUT answer jsonb)
LANGUAGE plpgsql AS $$
DECLARE done text;
BEGIN
  answer := noclobber.append(ws, body, id_of_call);
  done := pg_catalog.set_config('synchronous_commit', 'off', true);
  COMMIT;
  done := pg_catalog.set_config('synchronous_commit', 'on', true);
  done := pg_catalog.pg_logical_emit_message(true, 'noclobber', '');
END $$;

CREATE OR REPLACE PROCEDURE noclobber.append_events(ws text, bodies text[], id_of_call text, INOUT answer jsonb)
LANGUAGE plpgsql AS $$
DECLARE done text;
BEGIN
  answer := noclobber.append_all(ws, bodies, id_of_call);
  done := pg_catalog.set_config('synchronous_commit', 'off', true);
  COMMIT;
  done := pg_catalog.set_config('synchronous_commit', 'on', true);
  done := pg_catalog.pg_logical_emit_message(true, 'noclobber', '');
END $$;
