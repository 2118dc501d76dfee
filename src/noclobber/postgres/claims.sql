-- Claims: a host is about to write a file itself, and guarded writers on every machine wait for it, or refuse.
--
-- guard/claims.py says what a claim means; here it is a row instead of a file. A claim and a section both hold
-- the file's row while they begin. So either the section is over when the claim is made, or it sees the claim.

CREATE OR REPLACE FUNCTION noclobber.shown_claim(c noclobber.claim) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RETURN jsonb_build_object('claim_id', c.claim_id, 'path', c.path, 'owner', c.owner, 'call_id', c.call_id,
    'seen', c.seen,
    'take_over_in_s', extract(epoch FROM c.take_over - noclobber.steady_())::float8,
    'remaining_s', extract(epoch FROM c.expires - noclobber.steady_())::float8);
END $$;

-- Somebody else's claim on a file; NULL if there is none. `judged` names, in "claims", those that were found old
-- enough, and their file as it was.
CREATE OR REPLACE FUNCTION noclobber.claim_in_the_way(ws text, p text, who text, judged jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RETURN (
  SELECT noclobber.shown_claim(c) FROM noclobber.claim c
   WHERE c.workspace = ws AND c.path = p AND c.owner IS DISTINCT FROM who AND c.expires > noclobber.steady_()
     AND NOT (noclobber.steady_() >= c.take_over AND coalesce((judged->'claims') ? c.claim_id, false)));
END $$;

-- What a look at a path says: a hash, or a word for what is no file.
CREATE OR REPLACE FUNCTION noclobber.is_state(s text) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$ SELECT coalesce(s ~ '^([0-9a-f]{64}|[A-Z_]{1,40})$' AND position(E'\n' IN s) = 0, false) $$;

-- True if this is the tree of files that the workspace's name stands for.
CREATE OR REPLACE FUNCTION noclobber.is_tree(ws text, tree text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE found_tree text;
BEGIN
  SELECT t.tree_id INTO found_tree FROM noclobber.tree t WHERE t.workspace = ws;
  IF NOT FOUND THEN
    INSERT INTO noclobber.tree VALUES (ws, tree) ON CONFLICT DO NOTHING;
    SELECT t.tree_id INTO found_tree FROM noclobber.tree t WHERE t.workspace = ws;
  END IF;
  RETURN found_tree = tree;
END $$;

CREATE OR REPLACE FUNCTION noclobber.claim_file(
  ws text, tree text, p text, id text, who text, call text, seen_ text, held_up float8, life float8, judged jsonb
) RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE f noclobber.file; s noclobber.section; other jsonb; moment timestamptz;
BEGIN
  PERFORM noclobber.be_durable();
  IF NOT (noclobber.admit(ws) AND noclobber.is_text(tree) AND noclobber.is_path(p) AND noclobber.is_text(id)
          AND noclobber.is_text(who) AND noclobber.is_text(call) AND noclobber.is_state(seen_)
          AND coalesce(held_up BETWEEN 0 AND 86400 AND life BETWEEN 0 AND 86400, false)) THEN
    PERFORM noclobber.refuse('a claim has a file below the root, an id, an agent and an end');
  END IF;
  IF NOT noclobber.is_tree(ws, tree) THEN
    RETURN jsonb_build_object('outcome', 'other_tree');
  END IF;
  f := noclobber.hold_file(ws, p);
  IF f.section_id IS NOT NULL THEN
    SELECT * INTO s FROM noclobber.section k WHERE k.section_id = f.section_id;
    RETURN noclobber.shown_section(s, judged) || jsonb_build_object('outcome', 'busy', 'path', p);
  END IF;
  other := noclobber.claim_in_the_way(ws, p, who, judged);
  IF other IS NOT NULL THEN
    RETURN jsonb_build_object('outcome', 'claimed', 'claim', other);
  END IF;
  moment := noclobber.steady_();
  DELETE FROM noclobber.claim c WHERE c.workspace = ws AND c.path = p;
  INSERT INTO noclobber.claim VALUES (ws, p, id, who, call, seen_, f.version, moment,
    moment + make_interval(secs => held_up), moment + make_interval(secs => life));
  RETURN jsonb_build_object('outcome', 'begun', 'head', f.head, 'former', to_jsonb(f.former));
END $$;

-- The call is over. `left_` is what its host has left there: the file's newest version, if nobody else has written
-- it since the claim. Without that, a host that puts an earlier version back would look like an old cache for ever.
CREATE OR REPLACE FUNCTION noclobber.release_claim(ws text, p text, who text, left_ text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE c noclobber.claim; f noclobber.file;
BEGIN
  IF NOT (noclobber.admit(ws) AND noclobber.is_path(p) AND (left_ IS NULL OR noclobber.is_state(left_))) THEN
    PERFORM noclobber.refuse('a claim has a file below the root');
  END IF;
  f := noclobber.hold_file(ws, p);
  DELETE FROM noclobber.claim k WHERE k.workspace = ws AND k.path = p AND k.owner = who RETURNING * INTO c;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  IF left_ <> c.seen AND left_ IS DISTINCT FROM f.head AND c.expires > noclobber.steady_()
     AND f.section_id IS NULL AND f.version = c.file_version THEN
    UPDATE noclobber.file k
       SET version = f.version + 1, head = left_,
           former = (array_prepend(coalesce(f.head, c.seen), f.former))[1:32]
     WHERE k.workspace = ws AND k.path = p;
  END IF;
  PERFORM pg_notify('noclobber', md5(ws || '/sections'));
  RETURN true;
END $$;

-- Claims of a workspace; of one agent, if it is named.
CREATE OR REPLACE FUNCTION noclobber.list_claims(ws text, who text) RETURNS SETOF jsonb
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT noclobber.shown_claim(c) FROM noclobber.claim c
   WHERE noclobber.admit(ws) AND c.workspace = ws AND (who IS NULL OR c.owner = who) AND (who IS NOT NULL OR c.expires > noclobber.steady_())
   ORDER BY c.path
$$;
