-- Sections: the order in which machines write the files of a shared volume.
--
-- A section is begun, its writer renames files, and it is settled. The server cannot see the volume. Whoever
-- finds a section overdue looks at the volume, makes sure that the write has happened or never will
-- (section_recovery.py says how), and settles it.

-- The number of a section's id, for whoever may begin it or sweep it away.
CREATE OR REPLACE FUNCTION noclobber.gate(ws text) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT ('x' || left(md5('noclobber/' || ws), 16))::bit(64)::bigint $$;

CREATE OR REPLACE FUNCTION noclobber.shown_section(s noclobber.section, judged jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RETURN jsonb_build_object('section_id', s.section_id, 'writer', s.writer, 'process', s.process - 'judge',
    'state', s.state, 'files', s.files,
    'remaining_s', extract(epoch FROM s.deadline - noclobber.steady_())::float8,
    'is_overdue', noclobber.steady_() >= s.deadline OR coalesce((judged->'intents') ? s.section_id, false));
END $$;

-- A section with a file inside a folder; NULL if there is none.
CREATE OR REPLACE FUNCTION noclobber.section_inside(ws text, p text, judged jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RETURN (
  SELECT noclobber.shown_section(s, judged) FROM noclobber.section s
   WHERE s.workspace = ws
     AND EXISTS (SELECT FROM jsonb_array_elements(s.files) f WHERE noclobber.covers(p, f->>'path'))
   ORDER BY s.deadline LIMIT 1);
END $$;

-- Return a file's row, ours until the transaction ends.
CREATE OR REPLACE FUNCTION noclobber.hold_file(ws text, p text) RETURNS noclobber.file LANGUAGE plpgsql AS $$
DECLARE f noclobber.file;
BEGIN
  SELECT * INTO f FROM noclobber.file k WHERE k.workspace = ws AND k.path = p FOR UPDATE;
  IF NOT FOUND THEN
    INSERT INTO noclobber.file (workspace, path) VALUES (ws, p) ON CONFLICT DO NOTHING;
    SELECT * INTO f FROM noclobber.file k WHERE k.workspace = ws AND k.path = p FOR UPDATE;
  END IF;
  RETURN f;
END $$;

-- True for what an honest client says of the files: sorted, each once, from the root, with hashes.
CREATE OR REPLACE FUNCTION noclobber.are_files(files_ jsonb) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE row_ jsonb; last text := '';
BEGIN
  IF jsonb_typeof(files_) IS DISTINCT FROM 'array' OR jsonb_array_length(files_) NOT BETWEEN 1 AND 100000 THEN
    RETURN false;
  END IF;
  FOR n IN 0..jsonb_array_length(files_) - 1 LOOP
    row_ := files_->n;
    IF NOT (noclobber.is_path(row_->>'path') AND coalesce(row_->>'action' IN ('write', 'delete'), false)
            AND noclobber.is_hash(row_->>'from') AND noclobber.is_hash(row_->>'to')
            AND row_->>'path' COLLATE "C" > last COLLATE "C") THEN
      RETURN false;
    END IF;
    last := row_->>'path';
  END LOOP;
  RETURN true;
END $$;

-- `files_` is sorted by path: two sections that share files wait for each other in one order. `secrets` are the
-- writer's own locks, on the folders `own`, sorted; each covers one of the files at least. `claimant` is the agent whose
-- own claims do not stop it.
CREATE OR REPLACE FUNCTION noclobber.begin_section(
  ws text, tree text, id text, files_ jsonb, own text[], secrets text[], who text, process_ jsonb, judged jsonb,
  patience float8, claimant text
) RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  outcome_ text; s noclobber.section; f noclobber.file; l noclobber.lock; row_ jsonb; claim_ jsonb;
  heads jsonb := '[]'; paths text[] := '{}'; above text[]; done boolean; is_claimed boolean := false;
  late noclobber.lock[] := '{}'; own_here text; moment timestamptz; own_count int := coalesce(array_length(own, 1), 0);
BEGIN
  PERFORM noclobber.be_durable();
  IF NOT noclobber.are_files(files_) OR NOT coalesce(id ~ '^[0-9a-f]{24}$' AND length(id) = 24, false)
     OR NOT coalesce(patience BETWEEN 0 AND 600, false) OR NOT noclobber.admit(ws) OR NOT noclobber.is_text(tree)
     OR NOT noclobber.is_text(who) OR NOT noclobber.is_process(process_)
     OR NOT noclobber.are_secrets(coalesce(own, '{}')) OR NOT noclobber.are_secrets(coalesce(secrets, '{}'))
     OR own_count <> coalesce(array_length(secrets, 1), 0) THEN
    done := noclobber.refuse('a section has an id, files below the root in their order, and an end');
  END IF;
  done := pg_advisory_xact_lock(noclobber.gate(id)) IS NOT NULL;  -- Not while somebody sweeps its staged files away.
  IF NOT noclobber.is_tree(ws, tree) THEN
    RETURN jsonb_build_object('outcome', 'other_tree');
  END IF;
  SELECT e.outcome INTO outcome_ FROM noclobber.settled_section e WHERE e.section_id = id;
  IF FOUND THEN  -- Settled before its writer heard that it had begun.
    RETURN jsonb_build_object('outcome', 'settled', 'as', outcome_);
  END IF;
  -- A lock that is taken now is taken before this, or sees the section.
  IF jsonb_array_length(files_) = 1 THEN  -- The same without a query.
    above := noclobber.upward(files_->0->>'path');
  ELSE
    above := ARRAY(SELECT DISTINCT a COLLATE "C"
                     FROM jsonb_array_elements(files_) e, unnest(noclobber.upward(e->>'path')) a ORDER BY 1);
  END IF;
  done := noclobber.pass_gates(ws, above);
  FOR n IN 1..own_count LOOP
    l := noclobber.hold_lock(ws, own[n]);
    IF l.secret_sha256 IS DISTINCT FROM secrets[n] THEN
      RETURN jsonb_build_object('outcome', 'lost', 'lock', noclobber.shown(l));
    END IF;
    IF noclobber.steady_() >= l.expires THEN
      late := late || l;
    END IF;
  END LOOP;
  FOREACH l IN ARRAY late LOOP  -- After the last lock's row: this holds the chain.
    l := noclobber.extend(l, l.renewal_s);
  END LOOP;
  FOR n IN 0..jsonb_array_length(files_) - 1 LOOP
    row_ := files_->n;
    own_here := NULL;  -- The innermost own lock that covers this very file. One further up is no obstacle then.
    FOR m IN 1..own_count LOOP
      IF noclobber.covers(own[m], row_->>'path') AND (own_here IS NULL OR length(own[m]) > length(own_here)) THEN
        own_here := own[m];
      END IF;
    END LOOP;
    moment := noclobber.steady_();
    SELECT k.* INTO l FROM noclobber.lock k
     WHERE k.workspace = ws AND k.secret_sha256 IS NOT NULL
       AND k.expires > moment AND NOT noclobber.is_judged(k, judged)
       AND k.path = ANY (noclobber.upward(row_->>'path'))
       AND (own_here IS NULL OR NOT noclobber.covers(k.path, own_here))
     ORDER BY length(k.path) DESC LIMIT 1;
    IF FOUND THEN
      RETURN jsonb_build_object('outcome', 'refused', 'lock', noclobber.shown(l), 'path', row_->>'path');
    END IF;
    f := noclobber.hold_file(ws, row_->>'path');
    IF f.section_id IS NOT NULL AND f.section_id <> id THEN
      SELECT * INTO s FROM noclobber.section k WHERE k.section_id = f.section_id;
      RETURN noclobber.shown_section(s, judged) || jsonb_build_object('outcome', 'busy', 'path', f.path);
    END IF;
    -- Nobody claims a file while its row is ours.
    IF EXISTS (SELECT FROM noclobber.claim c WHERE c.workspace = ws AND c.path = f.path) THEN
      is_claimed := true;
      claim_ := noclobber.claim_in_the_way(ws, f.path, claimant, judged);
      IF claim_ IS NOT NULL THEN
        RETURN jsonb_build_object('outcome', 'claimed', 'claim', claim_);
      END IF;
    END IF;
    paths := paths || f.path;
    heads := heads || jsonb_build_object('path', f.path, 'head', f.head, 'former', to_jsonb(f.former));
  END LOOP;
  INSERT INTO noclobber.section VALUES
    (id, ws, who, process_, noclobber.steady_() + make_interval(secs => patience),
     CASE jsonb_array_length(files_) WHEN 1 THEN 'direct' ELSE 'open' END, files_)
    ON CONFLICT (section_id) DO NOTHING;
  UPDATE noclobber.file k SET section_id = id
   WHERE k.workspace = ws AND k.path = ANY (paths);
  IF is_claimed THEN  -- What was taken over is over: its host's write, if it comes, is a race like an outsider's.
    DELETE FROM noclobber.claim c
     WHERE c.workspace = ws AND c.path = ANY (paths)
       AND c.owner IS DISTINCT FROM claimant;
  END IF;
  RETURN jsonb_build_object('outcome', 'begun', 'heads', heads);
END $$;

-- Several files: from here on they land, all of them, whoever carries it out. Or from here on none will.
CREATE OR REPLACE FUNCTION noclobber.decide_section(id text, wanted text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE found_state text;
BEGIN
  PERFORM noclobber.be_durable();
  -- Also if it is decided already: a session that was ended has committed here, and perhaps not on the synchronous
  -- standby. Who holds a row waits for the standby before it is answered; who only reads does not.
  PERFORM noclobber.admit(s.workspace) FROM noclobber.section s WHERE s.section_id = id FOR UPDATE;
  UPDATE noclobber.section s SET state = wanted
   WHERE s.section_id = id AND s.state = 'open' AND wanted IN ('decided', 'revoked');
  SELECT s.state INTO found_state FROM noclobber.section s WHERE s.section_id = id;
  IF NOT FOUND THEN
    SELECT e.outcome INTO found_state FROM noclobber.settled_section e WHERE e.section_id = id;
  END IF;
  RETURN found_state;
END $$;

-- How it ended. The first answer stands; whoever asks again hears it.
CREATE OR REPLACE FUNCTION noclobber.settle_section(id text, outcome_ text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE s noclobber.section; row_ jsonb; earlier text; done text;
BEGIN
  PERFORM noclobber.be_durable();
  IF outcome_ NOT IN ('landed', 'refused', 'revoked') THEN
    RAISE invalid_parameter_value USING MESSAGE = 'a section lands, is refused or is revoked';
  END IF;
  SELECT * INTO s FROM noclobber.section k WHERE k.section_id = id FOR UPDATE;
  IF NOT FOUND THEN
    SELECT e.outcome INTO earlier FROM noclobber.settled_section e WHERE e.section_id = id;
    RETURN earlier;
  END IF;
  PERFORM noclobber.admit(s.workspace);
  -- What was decided lands: a file may have been replaced already.
  IF s.state = 'decided' THEN outcome_ := 'landed'; END IF;
  IF s.state IN ('open', 'revoked') AND outcome_ = 'landed' THEN outcome_ := 'revoked'; END IF;
  FOR n IN 0..jsonb_array_length(s.files) - 1 LOOP
    row_ := s.files->n;
    UPDATE noclobber.file f
       SET section_id = NULL,
           version = f.version + CASE outcome_ WHEN 'landed' THEN 1 ELSE 0 END,
           head = CASE outcome_ WHEN 'landed' THEN row_->>'to' ELSE f.head END,
           former = CASE WHEN outcome_ = 'landed' AND f.head IS NOT NULL
                         THEN (array_prepend(f.head, f.former))[1:32] ELSE f.former END
     WHERE f.workspace = s.workspace AND f.path = row_->>'path' AND f.section_id = id;
  END LOOP;
  -- A crash may forget that a write has landed: whoever finds it overdue sees that its staged file is gone. So
  -- nobody waits for the disk here, and the event that follows takes this along. A deletion is told by the server.
  IF outcome_ = 'landed' AND NOT s.files @> '[{"action": "delete"}]' THEN
    done := set_config('synchronous_commit', 'off', true);
  END IF;
  DELETE FROM noclobber.section k WHERE k.section_id = id;
  INSERT INTO noclobber.settled_section VALUES (id, outcome_, noclobber.steady_()) ON CONFLICT DO NOTHING;
  IF random() < 0.02 THEN  -- Now and then, and then more than came since.
    DELETE FROM noclobber.settled_section e
     WHERE e.section_id IN (SELECT o.section_id FROM noclobber.settled_section o
                             WHERE o.settled < noclobber.steady_() - interval '7 days' LIMIT 500);
  END IF;
  PERFORM pg_notify('noclobber', md5(s.workspace || '/sections'));
  RETURN outcome_;
END $$;

-- A staged file whose section nobody began: from now on nobody will. False if it is under way.
CREATE OR REPLACE FUNCTION noclobber.sweep_section(id text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM noclobber.be_durable();
  PERFORM pg_advisory_xact_lock(noclobber.gate(id));
  INSERT INTO noclobber.settled_section
    SELECT id, 'swept', noclobber.steady_()
     WHERE NOT EXISTS (SELECT FROM noclobber.section s WHERE s.section_id = id) ON CONFLICT DO NOTHING;
  RETURN NOT EXISTS (SELECT FROM noclobber.section s WHERE s.section_id = id);
END $$;

-- An overdue section of this workspace; for whoever tidies up.
CREATE OR REPLACE FUNCTION noclobber.overdue_section(ws text) RETURNS jsonb
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT noclobber.shown_section(s, '{}') FROM noclobber.section s
   WHERE noclobber.admit(ws) AND s.workspace = ws AND noclobber.steady_() >= s.deadline ORDER BY s.deadline LIMIT 1
$$;

-- True for a version that stood there once: a mount that shows it shows an old cache.
CREATE OR REPLACE FUNCTION noclobber.is_former(ws text, p text, sha256 text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT coalesce((SELECT sha256 = ANY (f.former) AND sha256 IS DISTINCT FROM f.head
                     FROM noclobber.file f WHERE noclobber.admit(ws) AND f.workspace = ws AND f.path = p), false)
$$;
