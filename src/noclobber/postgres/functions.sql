-- Locks and the ledger: the functions that are the only way to the tables.
--
-- One function is one step: one statement, one transaction, one round trip. It runs behind a transaction
-- pooler. Time is the server's, and leases are counted by a clock that nobody sets (`steady_`). Every id is made by the client, so each step may be asked again after an
-- answer was lost: the second time it finds that it was done, and says the same.
--
-- Rows are locked in one order, so that nobody waits in a circle: gates of folders from the root downwards, a lock's
-- row, files by their paths, then the workspace's chain.

-- What a step calls is written in plpgsql where it is more than an expression: its plan is kept for the session, while
-- that of a function in SQL is made anew at every call. And what many steps call is assigned (`done := …`) instead of
-- performed: an assignment is evaluated at once, PERFORM runs a query, which takes some 6 µs more each time.

-- The clocks. Tests replace them. This one is for people: it is set, by hand or by NTP, and leaps.
CREATE OR REPLACE FUNCTION noclobber.now_() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp()';

-- Seconds since the server's machine started, which nobody sets and which goes on while it sleeps. NULL if its owner may
-- not read that (a managed server), or it is not Linux.
CREATE OR REPLACE FUNCTION noclobber.uptime_s() RETURNS float8 LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF pg_has_role(current_user, 'pg_read_server_files', 'USAGE')
     AND has_function_privilege('pg_read_file(text,bigint,bigint,boolean)', 'EXECUTE') THEN
    RETURN split_part(pg_read_file('/proc/uptime', 0, 64, true), ' ', 1)::float8;
  END IF;
  RETURN NULL;
EXCEPTION WHEN OTHERS THEN
  RETURN NULL;
END $$;

-- The clock of every lease and every end: it never runs ahead of the time that has passed, so nobody's lease ends early.
-- A row has what it said when somebody looked. Since then, seconds of `uptime_s` have passed. After a start of the server
-- or a failover it goes on from what it said last. Where there is no uptime, it counts what the clock for people shows
-- between two looks, a second at most and nothing if it went back: a leap is a second then, and a time when nobody looks
-- does not pass. docs/decisions/steady-leases.md
CREATE OR REPLACE FUNCTION noclobber.steady_() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  s record; up float8 := noclobber.uptime_s(); reading_ float8; passed float8 := 0; is_due boolean; ends timestamptz;
BEGIN
  SELECT * INTO s FROM noclobber.steady;
  reading_ := coalesce(up, extract(epoch FROM noclobber.now_()));
  IF s.started IS DISTINCT FROM pg_postmaster_start_time() OR s.is_counted <> (up IS NULL) THEN
    is_due := true;
  ELSIF up IS NULL THEN
    passed := least(greatest(reading_ - s.reading, 0), 1);
    is_due := reading_ - s.reading NOT BETWEEN 0 AND 0.2;
  ELSE
    passed := greatest(reading_ - s.reading, 0);
    is_due := passed > 5;
  END IF;
  ends := s.moment + make_interval(secs => passed);
  IF is_due AND NOT pg_is_in_recovery() AND pg_try_advisory_xact_lock(7062635202) THEN
    UPDATE noclobber.steady k
       SET started = pg_postmaster_start_time(), is_counted = up IS NULL, reading = reading_, moment = ends
     WHERE k.moment = s.moment AND k.reading = s.reading;
  END IF;
  RETURN ends;
END $$;

-- How leases are counted, for people: "uptime" or "looks".
CREATE OR REPLACE FUNCTION noclobber.lease_clock() RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$ SELECT CASE WHEN noclobber.uptime_s() IS NULL THEN 'looks' ELSE 'uptime' END $$;

CREATE OR REPLACE FUNCTION noclobber.stamp(moment timestamptz) RETURNS text LANGUAGE sql STABLE AS
$$ SELECT to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') $$;

-- Strictly rising, also over a failover to a standby that had not heard of the last ones: the timeline is in
-- the upper bits, and a promoted standby has a new one.
CREATE OR REPLACE FUNCTION noclobber.next_token(last bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT greatest(last + 1, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint << 40)
$$;

-- A client that asks for what no honest one does. Everything that a client sends is checked before it is kept: others
-- read it, and act on it.
CREATE OR REPLACE FUNCTION noclobber.refuse(why text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RAISE invalid_parameter_value USING MESSAGE = why;
END $$;

-- What this step does is on the disk, and on every synchronous standby, when it is answered: whatever a database, a user
-- or PGOPTIONS says.
CREATE OR REPLACE FUNCTION noclobber.be_durable() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN CASE WHEN current_setting('synchronous_commit') IN ('on', 'remote_apply') THEN true
              ELSE set_config('synchronous_commit', 'on', true) IS NOT NULL END;
END $$;

-- A path from the root, which leads nowhere else: other clients open it. NULL and what is noclobber's own is none.
CREATE OR REPLACE FUNCTION noclobber.is_path(p text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(p !~ '(^|/)[.]{0,2}(/|$)' AND p !~* '(^|/)[.]noclobber(-[^/]*)?(/|$)' AND octet_length(p) <= 4096, false)
$$;

CREATE OR REPLACE FUNCTION noclobber.is_hash(h text) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$ SELECT coalesce(h ~ '^([0-9a-f]{64}|ABSENT)$' AND position(E'\n' IN h) = 0, false) $$;

-- Who asks: the user who logged in, or the role that a pooler has set for it. Inside these functions it is the owner.
CREATE OR REPLACE FUNCTION noclobber.caller() RETURNS name LANGUAGE sql STABLE AS
$$ SELECT coalesce(nullif(current_setting('role'), 'none'), session_user)::name $$;

-- May the caller use this workspace? Refused if it has roles of its own, and the caller is in none of them.
CREATE OR REPLACE FUNCTION noclobber.admit(ws text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF NOT coalesce(length(ws) BETWEEN 1 AND 200, false) THEN
    RETURN noclobber.refuse('a workspace has a name of up to 200 characters');
  END IF;
  IF EXISTS (SELECT FROM noclobber.member m WHERE m.workspace = ws)
     AND NOT EXISTS (SELECT FROM noclobber.member m JOIN pg_roles r ON r.rolname = m.role
                      WHERE m.workspace = ws AND pg_has_role(noclobber.caller(), r.oid, 'MEMBER')) THEN
    RAISE insufficient_privilege USING MESSAGE = format('workspace %s is for other roles', ws);
  END IF;
  RETURN true;
END $$;

-- For the owner: from now on only members of this role use the workspace. Several roles may be named, one after the other.
CREATE OR REPLACE FUNCTION noclobber.only_for(ws text, role_ name) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO noclobber.member VALUES (ws, role_) ON CONFLICT DO NOTHING;
END $$;

CREATE OR REPLACE FUNCTION noclobber.is_folder(p text) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$ SELECT coalesce(p = '' OR (p !~ '(^|/)[.]{0,2}(/|$)' AND octet_length(p) <= 4096), false) $$;

-- The hash of a lock's id.
CREATE OR REPLACE FUNCTION noclobber.is_secret(h text) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$ SELECT coalesce(h ~ '^[0-9a-f]{64}$' AND length(h) = 64, false) $$;

CREATE OR REPLACE FUNCTION noclobber.is_text(t text) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$ SELECT coalesce(octet_length(t) <= 16384, false) $$;

-- Ids of others' locks that the caller says it holds. With a NULL among them nothing would be in its way.
CREATE OR REPLACE FUNCTION noclobber.are_secrets(held text[]) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$ SELECT held IS NOT NULL AND array_position(held, NULL) IS NULL AND cardinality(held) <= 10000 $$;

-- A process, as clients look it up, or NULL. "judge" is the hash of what proves that somebody is on its machine.
CREATE OR REPLACE FUNCTION noclobber.is_process(p jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT p IS NULL OR (
    jsonb_typeof(p) = 'object' AND p ?& '{pid,started,host,boot_id,pid_namespace}'
    AND p - '{pid,started,host,boot_id,pid_namespace,time_namespace,judge}'::text[] = '{}'
    AND p->>'pid' ~ '^[0-9]{1,18}$' AND jsonb_typeof(p->'pid') = 'number' AND jsonb_typeof(p->'host') = 'string'
    AND (p->'started' = 'null' OR (p->>'started' ~ '^[0-9]{1,18}$' AND jsonb_typeof(p->'started') = 'number'))
    AND coalesce(jsonb_typeof(p->'boot_id') IN ('string', 'null') AND jsonb_typeof(p->'pid_namespace') IN ('string', 'null')
      AND coalesce(jsonb_typeof(p->'time_namespace'), 'null') IN ('string', 'null')
      AND coalesce(jsonb_typeof(p->'judge'), 'null') IN ('string', 'null'), false)
    AND octet_length(p::text) <= 4096)
$$;

-- What a client has found on its machine counts for processes of that machine: it knows what only users of that machine
-- know, and the process had said so when it began. Otherwise everything that a take-over needs would be public.
CREATE OR REPLACE FUNCTION noclobber.may_judge(process_ jsonb, judged jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(process_->>'judge' = encode(sha256(convert_to(judged->>'key', 'UTF8')), 'hex'), false)
$$;

-- Lock the workspace's chain until this transaction ends. Whoever has it sees everything that was recorded
-- before, and nobody records in between. The number first, and then the row: a row that many wait for wakes each of
-- them twice, a number once.
CREATE OR REPLACE FUNCTION noclobber.hold_chain(ws text) RETURNS noclobber.chain LANGUAGE plpgsql AS $$
DECLARE found_chain noclobber.chain;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(ws, 1));
  SELECT * INTO found_chain FROM noclobber.chain c WHERE c.workspace = ws FOR UPDATE;
  IF NOT FOUND THEN
    INSERT INTO noclobber.chain VALUES (ws, 0, repeat('0', 64)) ON CONFLICT DO NOTHING;
    SELECT * INTO found_chain FROM noclobber.chain c WHERE c.workspace = ws FOR UPDATE;
  END IF;
  RETURN found_chain;
END $$;

-- One line, spelled as the ledger file spells it: an export is a ledger file. `body` is the event's members as
-- JSON, without braces.
CREATE OR REPLACE FUNCTION noclobber.record(ws text, body text, id_of_call text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  last_seq bigint; last_hash text; at_ text; hashed text; digest text; done boolean; line_ text;
BEGIN
  -- As in hold_chain. Whoever has the number is alone with the row, so it is not locked as well: that would be a
  -- statement that writes to the log.
  done := pg_advisory_xact_lock(hashtextextended(ws, 1)) IS NOT NULL;
  SELECT c.seq, c.head INTO last_seq, last_hash FROM noclobber.chain c WHERE c.workspace = ws;
  IF NOT FOUND THEN
    SELECT c.seq, c.head INTO last_seq, last_hash FROM noclobber.hold_chain(ws) c;
  END IF;
  at_ := noclobber.stamp(noclobber.now_());
  hashed := concat('{"seq":', last_seq + 1, ',"time":"', at_, '",', body, ',"prev_hash":"sha256:', last_hash, '"');
  digest := encode(sha256(convert_to(hashed, 'UTF8')), 'hex');
  line_ := concat(hashed, ',"hash":"sha256:', digest, '"}');
  -- A line that is no JSON, or two lines in one, would break the chain for everybody.
  IF body IS NULL OR octet_length(line_) > 1048576 OR line_ ~ '[\x01-\x1f]' OR json_typeof(line_::json) <> 'object' THEN
    done := noclobber.refuse('an event is the members of one JSON object, on one line of up to 1048576 bytes');
  END IF;
  INSERT INTO noclobber.event VALUES (ws, last_seq + 1, line_, id_of_call);
  UPDATE noclobber.chain c SET seq = last_seq + 1, head = digest WHERE c.workspace = ws AND c.seq = last_seq;
  IF NOT FOUND THEN  -- A function of an earlier version was under way while they were replaced: ask again.
    RAISE serialization_failure USING MESSAGE = 'the chain has grown meanwhile';
  END IF;
  IF id_of_call IS NULL THEN  -- Nobody asks.
    RETURN NULL;
  END IF;
  RETURN jsonb_build_object('seq', last_seq + 1, 'time', at_, 'hash', digest, 'prev_hash', last_hash);
END $$;

-- True for what every reader understands: not nested deeper than readers go, characters in pairs, and none of the
-- members that the chain itself writes, of which readers would take the second.
CREATE OR REPLACE FUNCTION noclobber.is_event(body text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE rest text; shorter text; read_ text := replace(body, '\u0000', '\u0001');  -- A text has no place for it.
BEGIN
  IF NOT coalesce(octet_length(body) BETWEEN 1 AND 1048000 AND body !~ '[\x01-\x1f]', false) THEN
    RETURN false;
  END IF;
  IF length(body) - length(translate(body, '[{', '')) > 100 THEN
    rest := regexp_replace(body, '"([^"\\]|\\.)*"|[^][{}]', '', 'g');
    FOR n IN 1..100 LOOP
      shorter := regexp_replace(rest, '(\[\]|\{\})+', '', 'g');
      EXIT WHEN shorter = rest;
      rest := shorter;
    END LOOP;
    IF rest <> '' THEN
      RETURN false;
    END IF;
  END IF;
  IF body ~* '\\ud[89a-f]' AND (concat('{', read_, '}')::jsonb) IS NULL THEN  -- Refuses half a pair.
    RETURN false;
  END IF;
  RETURN NOT EXISTS (SELECT FROM json_object_keys(concat('{', read_, '}')::json) k
                      WHERE k IN ('seq', 'time', 'prev_hash', 'hash'));
END $$;

CREATE OR REPLACE FUNCTION noclobber.append(ws text, body text, id_of_call text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE done text; is_alone boolean;
BEGIN
  IF NOT (noclobber.admit(ws) AND coalesce(octet_length(id_of_call) BETWEEN 1 AND 200, false)) THEN
    is_alone := noclobber.refuse('an event has an id of up to 200 bytes');
  END IF;
  is_alone := pg_advisory_xact_lock(hashtextextended(ws, 1)) IS NOT NULL;  -- As in hold_chain.
  SELECT e.line INTO done FROM noclobber.event e WHERE e.workspace = ws AND e.call_id = id_of_call;
  IF FOUND THEN  -- It was recorded, and the answer got lost on its way.
    -- Perhaps the synchronous standby has not heard of it. Who holds a row waits for it, and who only reads does not.
    PERFORM noclobber.hold_chain(ws);
    RETURN jsonb_build_object('seq', (done::json->>'seq')::bigint, 'time', done::json->>'time',
      'hash', right(done::json->>'hash', 64), 'prev_hash', right(done::json->>'prev_hash', 64));
  END IF;
  IF NOT noclobber.is_event(body) THEN
    is_alone := noclobber.refuse('an event is the members of one JSON object, on one line, without those of the chain');
  END IF;
  RETURN noclobber.record(ws, body, id_of_call);
END $$;

-- Several events, one after the other: all of them or none.
CREATE OR REPLACE FUNCTION noclobber.append_all(ws text, bodies text[], id_of_call text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE answers jsonb := '[]'; body text; n int := 0;
BEGIN
  PERFORM noclobber.admit(ws);
  PERFORM noclobber.hold_chain(ws);
  FOREACH body IN ARRAY bodies LOOP
    n := n + 1;
    answers := answers || noclobber.append(ws, body, id_of_call || '/' || n);
  END LOOP;
  RETURN answers;
END $$;

-- Where the chain ends, for whoever reads it: all of it is on the disk, and on every synchronous standby, when this is
-- answered. Otherwise somebody could remember an end that a crash takes back.
CREATE OR REPLACE FUNCTION noclobber.chain_end(ws text) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE found_end jsonb;
BEGIN
  PERFORM noclobber.be_durable(), noclobber.admit(ws);
  SELECT jsonb_build_object('seq', c.seq, 'head', c.head) INTO found_end FROM noclobber.chain c WHERE c.workspace = ws;
  IF NOT pg_is_in_recovery() AND (pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()
                                  OR current_setting('synchronous_standby_names') <> '') THEN
    PERFORM pg_logical_emit_message(true, 'noclobber', '');  -- Its commit waits.
  END IF;
  RETURN coalesce(found_end, jsonb_build_object('seq', 0, 'head', repeat('0', 64)));
END $$;

-- Lines after `last_seen`, up to `last_wanted`: a page of the chain.
CREATE OR REPLACE FUNCTION noclobber.lines(ws text, last_seen bigint, last_wanted bigint, most int) RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT e.line FROM noclobber.event e
   WHERE noclobber.admit(ws) AND e.workspace = ws AND e.seq > last_seen AND e.seq <= last_wanted
   ORDER BY e.seq LIMIT most
$$;

-- Locks

-- A folder and the folders above it, up to the root.
CREATE OR REPLACE FUNCTION noclobber.upward(p text) RETURNS text[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE found_ text[] := ARRAY['']; here text; part text;
BEGIN
  IF p <> '' THEN
    FOREACH part IN ARRAY string_to_array(p, '/') LOOP
      here := concat_ws('/', here, part);
      found_ := found_ || here;
    END LOOP;
  END IF;
  RETURN found_;
END $$;

-- Who takes or clears a lock has its folder's gate alone, and shares those above it; so does whoever begins to write a
-- file, for every folder above it. So two steps that could be about one file go one after the other, and the second
-- sees what the first has done. Steps in folders beside each other do not meet.
CREATE OR REPLACE FUNCTION noclobber.hold_gate(ws text, above text[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  done boolean := true; last int := array_length(above, 1);
BEGIN
  FOR n IN 1..last - 1 LOOP  -- From the root downwards, as everybody does.
    done := pg_advisory_xact_lock_shared(hashtextextended(concat(ws, '/', above[n]), 0)) IS NOT NULL;
  END LOOP;
  RETURN pg_advisory_xact_lock(hashtextextended(concat(ws, '/', above[last]), 0)) IS NOT NULL;
END $$;

CREATE OR REPLACE FUNCTION noclobber.pass_gates(ws text, above text[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  done boolean := true; folder_ text;
BEGIN
  FOREACH folder_ IN ARRAY above LOOP
    done := pg_advisory_xact_lock_shared(hashtextextended(concat(ws, '/', folder_), 0)) IS NOT NULL;
  END LOOP;
  RETURN done;
END $$;

-- True if a folder covers another: the same one, or above it.
CREATE OR REPLACE FUNCTION noclobber.covers(above text, below text) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$ SELECT above = '' OR above = below OR starts_with(below, above || '/') $$;

-- True if a client has found that this very version's holder no longer runs. With the lock's id: a server that lost its
-- last moments, or the standby that follows it, gives a version's number to another holder.
CREATE OR REPLACE FUNCTION noclobber.is_judged(l noclobber.lock, judged jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$ SELECT coalesce(judged->'locks'->>l.path = l.version::text || ' ' || left(l.secret_sha256, 32), false)
          AND noclobber.may_judge(l.process, judged) $$;

CREATE OR REPLACE FUNCTION noclobber.shown(l noclobber.lock) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RETURN jsonb_build_object(
    'path', l.path, 'token', l.token, 'version', l.version, 'is_free', l.secret_sha256 IS NULL,
    'lock_id', left(l.secret_sha256, 32), 'deliverable_id', l.deliverable_id, 'holder', l.holder,
    'acquired', noclobber.stamp(l.acquired), 'lease_s', l.lease_s, 'renewal_s', l.renewal_s,
    'process', l.process - 'judge', 'remaining_s', extract(epoch FROM l.expires - noclobber.steady_())::float8,
    'age_s', extract(epoch FROM noclobber.steady_() - l.taken)::float8);
END $$;

CREATE OR REPLACE FUNCTION noclobber.record_lock(l noclobber.lock, kind text) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  RETURN noclobber.record(l.workspace, concat(
    '"action_type":"LOCK_', kind,
    '","payload":{"deliverable_id":', to_json(l.deliverable_id),
    ',"folder":', to_json(l.folder),
    ',"path":', to_json(l.path),
    ',"lock_id":"', left(l.secret_sha256, 32),
    '","acquired":"', noclobber.stamp(l.acquired),
    CASE kind WHEN 'RELEASED' THEN '"' ELSE '","lease_duration_s":' || l.lease_s END,
    ',"pid":' || (l.process->>'pid'),
    ',"fencing_token":', l.token,
    '},"result":{"status":"', kind,
    '"},"identity":{"agent_id":', to_json(l.holder),
    ',"host":', coalesce((l.process->'host')::text, 'null'), '}'), NULL);
END $$;

-- Somebody's orphan was taken over: by acquire, by hand or by a write. One kind of event for all.
CREATE OR REPLACE FUNCTION noclobber.record_recovery(
  orphan noclobber.lock, why text, by_ text, at_ text, folder text, host jsonb, new_lock_id text, how text
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM noclobber.record(orphan.workspace,
    '"action_type":"LOCK_RECOVERED","payload":{"deliverable_id":' || to_json(orphan.deliverable_id)::text
    || ',"folder":' || to_json(folder)::text
    || ',"path":' || to_json(orphan.path)::text
    || ',"recovery_reason":' || to_json(why)::text
    || ',"previous_holder":' || to_json(orphan.holder)::text
    || ',"previous_acquired":"' || noclobber.stamp(orphan.acquired)
    || '","previous_lock_id":"' || left(orphan.secret_sha256, 32)
    || '","previous_fencing_token":' || orphan.token
    || '},"result":{"status":"RECOVERED","recovered_by":' || to_json(by_)::text
    || ',"recovered_at":' || to_json(at_)::text
    || ',"how":' || to_json(how)::text
    || ',"lock_id":' || coalesce(to_json(new_lock_id)::text, 'null')
    || '},"identity":{"agent_id":' || to_json(by_)::text
    || ',"host":' || coalesce(host::text, 'null') || '}', NULL);
END $$;

-- Return a lock's row, ours until the transaction ends.
CREATE OR REPLACE FUNCTION noclobber.hold_lock(ws text, p text) RETURNS noclobber.lock LANGUAGE plpgsql AS $$
DECLARE l noclobber.lock;
BEGIN
  SELECT * INTO l FROM noclobber.lock k WHERE k.workspace = ws AND k.path = p FOR UPDATE;
  IF NOT FOUND THEN
    INSERT INTO noclobber.lock (workspace, path) VALUES (ws, p) ON CONFLICT DO NOTHING;
    SELECT * INTO l FROM noclobber.lock k WHERE k.workspace = ws AND k.path = p FOR UPDATE;
  END IF;
  RETURN l;
END $$;

-- Why a lock may be taken over now; NULL if it may not.
CREATE OR REPLACE FUNCTION noclobber.orphaned(l noclobber.lock, judged jsonb) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RETURN CASE WHEN l.secret_sha256 IS NULL THEN NULL
              WHEN noclobber.steady_() >= l.expires THEN 'lease_expired'
              WHEN noclobber.is_judged(l, judged) THEN 'pid_dead' END;
END $$;

-- A write that is not over; `judged_writers` are ids of those whose process no longer runs.
CREATE OR REPLACE FUNCTION noclobber.unsettled(ws text, p text, judged jsonb) RETURNS noclobber.write_intent
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RETURN (
  SELECT i FROM noclobber.write_intent i
   WHERE i.workspace = ws AND i.path = p AND i.deadline > noclobber.steady_()
     AND NOT (coalesce((judged->'intents') ? i.intent_id, false) AND noclobber.may_judge(i.process, judged))
   ORDER BY i.deadline DESC LIMIT 1);
END $$;

-- True if whoever asked for a lock or a write with this id has given up: a question may wait here for its turn for
-- longer than anybody waits for its answer. To be asked while the lock's row is ours.
CREATE OR REPLACE FUNCTION noclobber.is_undone(id text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RETURN EXISTS (SELECT FROM noclobber.settled_section e WHERE e.section_id = 'never/' || id);
END $$;

-- `judged` is an object: "locks", paths with the version and the id that were found dead; "intents" and "claims", lists
-- of ids.
CREATE OR REPLACE FUNCTION noclobber.take(
  ws text, p text, secret text, wanted_id text, who text, folder_ text, lease int, process_ jsonb,
  held text[], judged jsonb, is_waiting boolean
) RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  l noclobber.lock; taken noclobber.lock; other noclobber.lock; intent noclobber.write_intent; section_ jsonb;
  why text; moment timestamptz; above text[]; done boolean; recorded jsonb;
BEGIN
  IF NOT (noclobber.admit(ws) AND noclobber.is_folder(p) AND noclobber.is_secret(secret) AND noclobber.is_text(wanted_id)
          AND noclobber.is_text(who) AND noclobber.is_text(folder_) AND coalesce(lease BETWEEN 1 AND 86400, false)
          AND noclobber.is_process(process_) AND noclobber.are_secrets(held)) THEN
    done := noclobber.refuse('a lock has a folder below the root, an id, names, a process and a lease of 1 to 86400 s');
  END IF;
  above := noclobber.upward(p);
  done := noclobber.hold_gate(ws, above);
  SELECT * INTO l FROM noclobber.lock k WHERE k.workspace = ws AND k.path = p FOR UPDATE;
  IF NOT FOUND THEN
    l := noclobber.hold_lock(ws, p);
  END IF;
  IF l.secret_sha256 IS NOT NULL THEN
    IF l.secret_sha256 = secret THEN  -- It is ours: the answer to our first question got lost.
      RETURN jsonb_build_object('outcome', 'taken', 'lock', noclobber.shown(l));
    END IF;
    why := noclobber.orphaned(l, judged);
    IF why IS NULL THEN
      IF is_waiting AND NOT l.is_wanted THEN
        UPDATE noclobber.lock k SET is_wanted = true WHERE k.workspace = ws AND k.path = p;
      END IF;
      RETURN jsonb_build_object('outcome', 'refused', 'lock', noclobber.shown(l));
    END IF;
  END IF;
  -- Nothing to recover, and nothing that could be in the way: that is looked for by index, and not judged. It is one
  -- statement with the change, which saves a tenth of the step. Not one with the lock of the row above: this one must see
  -- what was done while that one waited.
  moment := noclobber.steady_();
  IF why IS NULL THEN
    UPDATE noclobber.lock k
       SET token = noclobber.next_token(k.token), version = k.version + 1, secret_sha256 = secret,
           deliverable_id = wanted_id, holder = who, folder = folder_, acquired = noclobber.now_(), taken = moment,
           expires = moment + make_interval(secs => lease), lease_s = lease, renewal_s = lease,
           process = process_, ended_call = NULL, is_wanted = false
     WHERE k.workspace = ws AND k.path = p
       AND NOT EXISTS (SELECT FROM noclobber.write_intent i WHERE i.workspace = ws AND i.path = p)
       AND NOT EXISTS (SELECT FROM noclobber.section s WHERE s.workspace = ws)
       AND NOT EXISTS (SELECT FROM noclobber.settled_section e WHERE e.section_id = 'never/' || secret)
       AND NOT EXISTS (SELECT FROM noclobber.lock o WHERE o.workspace = ws AND o.path = ANY (above)
                          AND o.secret_sha256 IS NOT NULL AND o.path <> p)
       AND NOT EXISTS (SELECT FROM noclobber.lock o
                        WHERE o.workspace = ws AND o.path > CASE p WHEN '' THEN '' ELSE p || '/' END
                          AND (p = '' OR o.path < p || '0') AND o.secret_sha256 IS NOT NULL)
    RETURNING k.* INTO taken;
  END IF;
  IF taken.path IS NULL THEN
    IF noclobber.is_undone(secret) THEN
      RETURN jsonb_build_object('outcome', 'undone', 'lock', noclobber.shown(l));
    END IF;
    intent := noclobber.unsettled(ws, p, judged);
    IF intent.intent_id IS NOT NULL THEN
      RETURN jsonb_build_object('outcome', 'unsettled', 'lock', noclobber.shown(l),
        'intent_id', intent.intent_id, 'writer', intent.writer, 'process', intent.process - 'judge',
        'remaining_s', extract(epoch FROM intent.deadline - noclobber.steady_())::float8);
    END IF;
    section_ := noclobber.section_inside(ws, p, judged);
    IF section_ IS NOT NULL THEN
      RETURN section_ || jsonb_build_object('outcome', 'unsettled', 'lock', noclobber.shown(l),
        'intent_id', section_->'section_id');
    END IF;
    SELECT k.* INTO other FROM noclobber.lock k
     WHERE k.workspace = ws AND k.path <> p AND k.secret_sha256 IS NOT NULL AND k.expires > moment
       AND (noclobber.covers(k.path, p) OR noclobber.covers(p, k.path))
       AND NOT k.secret_sha256 = ANY (held) AND NOT noclobber.is_judged(k, judged)
     ORDER BY k.path LIMIT 1;
    IF other.path IS NOT NULL THEN
      RETURN jsonb_build_object('outcome', 'in_the_way', 'lock', noclobber.shown(other));
    END IF;
    DELETE FROM noclobber.write_intent i WHERE i.workspace = ws AND i.path = p;
    moment := noclobber.steady_();
    IF why IS NOT NULL THEN
      PERFORM noclobber.record_recovery(l, why, who, noclobber.stamp(noclobber.now_()), folder_, process_->'host',
        left(secret, 32), 'acquire');
    END IF;
    UPDATE noclobber.lock k
       SET token = noclobber.next_token(l.token), version = l.version + 1, secret_sha256 = secret,
           deliverable_id = wanted_id, holder = who, folder = folder_, acquired = noclobber.now_(), taken = moment,
           expires = moment + make_interval(secs => lease), lease_s = lease, renewal_s = lease,
           process = process_, ended_call = NULL, is_wanted = false
     WHERE k.workspace = ws AND k.path = p RETURNING k.* INTO taken;
  END IF;
  recorded := noclobber.record_lock(taken, 'ACQUIRED');
  RETURN jsonb_build_object('outcome', 'taken', 'lock', noclobber.shown(taken), 'recovered', why);
END $$;

CREATE OR REPLACE FUNCTION noclobber.look(ws text, p text) RETURNS jsonb
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT noclobber.shown(k)
    FROM noclobber.lock k WHERE noclobber.admit(ws) AND k.workspace = ws AND k.path = p AND k.secret_sha256 IS NOT NULL
$$;

-- The lock with this secret; of any other one only who holds it.
CREATE OR REPLACE FUNCTION noclobber.find(ws text, p text, secret text) RETURNS jsonb
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT noclobber.shown(k) || jsonb_build_object('is_own', coalesce(k.secret_sha256 = secret, false))
    FROM noclobber.lock k WHERE noclobber.admit(ws) AND k.workspace = ws AND k.path = p
$$;

CREATE OR REPLACE FUNCTION noclobber.list(ws text, p text) RETURNS SETOF jsonb
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT noclobber.shown(k) FROM noclobber.lock k
   WHERE noclobber.admit(ws) AND k.workspace = ws AND noclobber.covers(p, k.path) AND k.secret_sha256 IS NOT NULL
   ORDER BY k.path
$$;

-- The innermost lock, live or not, that covers a path.
CREATE OR REPLACE FUNCTION noclobber.covering(ws text, p text) RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT k.path FROM noclobber.lock k
   WHERE noclobber.admit(ws) AND k.workspace = ws AND noclobber.covers(k.path, p) AND k.secret_sha256 IS NOT NULL
   ORDER BY length(k.path) DESC LIMIT 1
$$;

CREATE OR REPLACE FUNCTION noclobber.extend(l noclobber.lock, lease int) RETURNS noclobber.lock LANGUAGE plpgsql AS $$
DECLARE renewed noclobber.lock; ends timestamptz;
BEGIN
  -- `taken` stays, so that taken + lease is the true end. Never earlier than before: others count on it.
  ends := greatest(l.expires, noclobber.steady_() + make_interval(secs => lease));
  UPDATE noclobber.lock k
     SET expires = ends, lease_s = ceil(extract(epoch FROM ends - l.taken)), renewal_s = lease,
         version = l.version + 1
   WHERE k.workspace = l.workspace AND k.path = l.path RETURNING k.* INTO renewed;
  PERFORM noclobber.record_lock(renewed, 'RENEWED');
  RETURN renewed;
END $$;

CREATE OR REPLACE FUNCTION noclobber.renew(ws text, p text, secret text, lease int) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE l noclobber.lock;
BEGIN
  IF NOT (noclobber.admit(ws) AND noclobber.is_folder(p) AND noclobber.is_secret(secret)
          AND coalesce(lease BETWEEN 1 AND 86400, false)) THEN
    PERFORM noclobber.refuse('a lease is 1 to 86400 s');
  END IF;
  l := noclobber.hold_lock(ws, p);
  IF l.secret_sha256 IS DISTINCT FROM secret THEN
    RETURN noclobber.shown(l) || jsonb_build_object('is_own', false);
  END IF;
  l := noclobber.extend(l, lease);
  RETURN noclobber.shown(l) || jsonb_build_object('is_own', true);
END $$;

CREATE OR REPLACE FUNCTION noclobber.give_up(ws text, p text, secret text, id_of_call text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE l noclobber.lock; done text; recorded jsonb;
BEGIN
  IF NOT (noclobber.admit(ws) AND noclobber.is_folder(p) AND noclobber.is_secret(secret) AND noclobber.is_text(id_of_call)) THEN
    PERFORM noclobber.refuse('a lock is released by its id');
  END IF;
  -- `is_wanted` stays for the notice below; whoever takes the lock next sets it anew.
  UPDATE noclobber.lock k
     SET secret_sha256 = NULL, version = k.version + 1, ended_call = id_of_call
   WHERE k.workspace = ws AND k.path = p AND k.secret_sha256 = secret RETURNING k.* INTO l;
  IF NOT FOUND THEN
    l := noclobber.hold_lock(ws, p);
    RETURN noclobber.shown(l) || jsonb_build_object('is_own', coalesce(l.ended_call = id_of_call, false));
  END IF;
  l.secret_sha256 := secret;
  recorded := noclobber.record_lock(l, 'RELEASED');
  IF l.is_wanted THEN PERFORM pg_notify('noclobber', md5(ws || '/' || p)); END IF;
  -- Nobody waits for the disk here. The next step that does takes this along, in its order. If the server crashes
  -- before that, the lock is held again until its lease ends or its process is seen to be gone, and its holder, who
  -- has stopped, loses nothing. Whoever reads the chain sees to it first that what it shows stays (chain_end).
  done := set_config('synchronous_commit', 'off', true);
  RETURN jsonb_build_object('is_own', true);
END $$;

CREATE OR REPLACE FUNCTION noclobber.clear(
  ws text, p text, wanted_id text, who text, folder_ text, host jsonb, held text[], judged jsonb,
  retires boolean, how text
) RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  l noclobber.lock; intent noclobber.write_intent; section_ jsonb; why text; at_ text;
BEGIN
  PERFORM noclobber.be_durable();
  IF NOT (noclobber.admit(ws) AND noclobber.is_folder(p) AND noclobber.is_text(who) AND noclobber.is_text(folder_)
          AND noclobber.is_text(how) AND noclobber.are_secrets(held) AND retires IS NOT NULL
          AND noclobber.is_text(coalesce(wanted_id, '')) AND coalesce(jsonb_typeof(host), 'null') IN ('string', 'null')
          AND noclobber.is_text(coalesce(host::text, ''))) THEN
    PERFORM noclobber.refuse('a lock is cleared by somebody with a name, in a folder below the root');
  END IF;
  PERFORM noclobber.hold_gate(ws, noclobber.upward(p));
  l := noclobber.hold_lock(ws, p);
  IF l.secret_sha256 IS NULL AND NOT retires THEN
    RETURN jsonb_build_object('outcome', 'free');
  END IF;
  why := noclobber.orphaned(l, judged);
  IF l.secret_sha256 IS NOT NULL AND why IS NULL AND NOT (retires AND l.secret_sha256 = ANY (held)) THEN
    RETURN jsonb_build_object('outcome', 'refused', 'lock', noclobber.shown(l));
  END IF;
  intent := noclobber.unsettled(ws, p, judged);
  IF intent.intent_id IS NOT NULL THEN
    RETURN jsonb_build_object('outcome', 'unsettled', 'lock', noclobber.shown(l),
      'intent_id', intent.intent_id, 'writer', intent.writer, 'process', intent.process - 'judge',
      'remaining_s', extract(epoch FROM intent.deadline - noclobber.steady_())::float8);
  END IF;
  section_ := noclobber.section_inside(ws, p, judged);
  IF section_ IS NOT NULL THEN
    RETURN section_ || jsonb_build_object('outcome', 'unsettled', 'lock', noclobber.shown(l),
      'intent_id', section_->'section_id');
  END IF;
  at_ := noclobber.stamp(noclobber.now_());
  IF why IS NOT NULL THEN
    PERFORM noclobber.record_recovery(l, why, who, at_, folder_, host, NULL, how);
  END IF;
  IF retires THEN
    PERFORM noclobber.record(ws, '"action_type":"LOCK_RETIRED","payload":{"deliverable_id":'
      || to_json(coalesce(l.deliverable_id, wanted_id, ''))::text || ',"folder":' || to_json(folder_)::text
      || ',"path":' || to_json(p)::text || '},"result":{"status":"RETIRED"},"identity":{"agent_id":'
      || to_json(who)::text || ',"host":' || coalesce(host::text, 'null') || '}', NULL);
  END IF;
  UPDATE noclobber.lock k SET secret_sha256 = NULL, version = l.version + 1, is_wanted = false
   WHERE k.workspace = ws AND k.path = p;
  IF l.is_wanted THEN PERFORM pg_notify('noclobber', md5(ws || '/' || p)); END IF;
  RETURN jsonb_build_object('outcome', 'cleared', 'lock', noclobber.shown(l), 'recovered', why);
END $$;

-- A guarded write: let through, or not. What was let through is on record before it happens.
CREATE OR REPLACE FUNCTION noclobber.begin_write(
  ws text, p text, secret text, id text, who text, folder_ text, process_ jsonb, judged jsonb, patience float8
) RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE l noclobber.lock; why text;
BEGIN
  PERFORM noclobber.be_durable();
  IF NOT (noclobber.admit(ws) AND noclobber.is_folder(p) AND (secret IS NULL OR noclobber.is_secret(secret))
          AND coalesce(octet_length(id) BETWEEN 1 AND 100, false) AND noclobber.is_text(who) AND noclobber.is_text(folder_)
          AND noclobber.is_process(process_) AND coalesce(patience BETWEEN 0 AND 600, false)) THEN
    PERFORM noclobber.refuse('a write has a folder below the root, an id, a writer and an end');
  END IF;
  l := noclobber.hold_lock(ws, p);
  IF noclobber.is_undone(id) THEN
    RETURN jsonb_build_object('outcome', 'undone', 'lock', noclobber.shown(l));
  END IF;
  IF secret IS NOT NULL THEN
    IF l.secret_sha256 IS DISTINCT FROM secret THEN
      RETURN jsonb_build_object('outcome', 'lost', 'lock', noclobber.shown(l));
    END IF;
    IF noclobber.steady_() >= l.expires THEN
      l := noclobber.extend(l, l.renewal_s);
    END IF;
  ELSIF l.secret_sha256 IS NOT NULL THEN
    why := noclobber.orphaned(l, judged);
    IF why IS NULL THEN
      RETURN jsonb_build_object('outcome', 'refused', 'lock', noclobber.shown(l));
    END IF;
    PERFORM noclobber.record_recovery(l, why, who, noclobber.stamp(noclobber.now_()), folder_,
      process_->'host', NULL, 'write');
    UPDATE noclobber.lock k SET secret_sha256 = NULL, version = l.version + 1
     WHERE k.workspace = ws AND k.path = p;
  END IF;
  INSERT INTO noclobber.write_intent VALUES
    (id, ws, p, who, process_, noclobber.steady_() + make_interval(secs => patience))
    ON CONFLICT (intent_id) DO NOTHING;
  RETURN jsonb_build_object('outcome', 'begun', 'lock', noclobber.shown(l));
END $$;

CREATE OR REPLACE FUNCTION noclobber.settle_write(ws text, p text, id text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM noclobber.admit(ws);
  DELETE FROM noclobber.write_intent i WHERE i.intent_id = id AND i.workspace = ws AND i.path = p;
END $$;

-- Whoever asked for this lock or this write has given up, and does not know whether it was heard. What was done is undone.
-- What still waits for its turn finds the note, and does nothing: it needs the lock's row, which is ours until then.
CREATE OR REPLACE FUNCTION noclobber.never(ws text, p text, id text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE l noclobber.lock; done jsonb;
BEGIN
  PERFORM noclobber.be_durable();
  IF NOT (noclobber.admit(ws) AND noclobber.is_folder(p) AND coalesce(octet_length(id) BETWEEN 1 AND 100, false)) THEN
    PERFORM noclobber.refuse('what is undone has a folder below the root and an id');
  END IF;
  l := noclobber.hold_lock(ws, p);
  INSERT INTO noclobber.settled_section VALUES ('never/' || id, 'undone', noclobber.steady_()) ON CONFLICT DO NOTHING;
  DELETE FROM noclobber.write_intent i WHERE i.intent_id = id AND i.workspace = ws AND i.path = p;
  IF l.secret_sha256 = id THEN
    done := noclobber.give_up(ws, p, id, id);
  END IF;
  DELETE FROM noclobber.settled_section e
   WHERE e.section_id IN (SELECT o.section_id FROM noclobber.settled_section o
                           WHERE o.settled < noclobber.steady_() - interval '7 days' LIMIT 500);
END $$;

CREATE OR REPLACE FUNCTION noclobber.installed_version() RETURNS int
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
'SELECT version FROM noclobber.schema_version';

-- What there is, in numbers.
CREATE OR REPLACE FUNCTION noclobber.summary() RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT jsonb_build_object(
    'schema_version', noclobber.installed_version(),
    'workspaces', (SELECT count(DISTINCT c.workspace) FROM noclobber.chain c),
    'locks', (SELECT count(*) FROM noclobber.lock k WHERE k.secret_sha256 IS NOT NULL),
    'writes_under_way', (SELECT count(*) FROM noclobber.write_intent),
    'events', (SELECT coalesce(sum(c.seq), 0) FROM noclobber.chain c))
$$;
