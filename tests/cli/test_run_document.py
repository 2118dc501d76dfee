"""`run --json` and `lock run --json`: stdout has one document, whatever the command prints and however it ends."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import noclobber
from noclobber.cli.documents import document_schema
from noclobber.disk.hashing import of_bytes
from tests.rigs.commands import Done, run
from tests.rigs.schemas import check
from tests.shell.test_process import is_available, run_with_an_outsider

LOUD = 'echo \'{"not": "ours"}\'; echo >&2 to stderr; '


def document(done: Done) -> Any:
    """The one document that stdout has; fails if there is a byte more."""
    value = json.loads(done.out)
    assert done.out.count("\n") == 1
    return value


def run_json(root: Path, script: str, *options: str, **changes: str) -> tuple[Done, Any]:
    """Run a script that prints what looks like a document; return how it ended, and the document."""
    words = ("run", "--json", *options, "--", "sh", "-c", LOUD + script)
    done = run(*words, cwd=root, **changes)
    assert '{"not": "ours"}\n' in done.err, "the command's own output goes to stderr"
    return done, document(done)


@pytest.mark.parametrize("level", ["guarded", "watched"])
def test_what_landed_is_the_document_and_the_commands_output_is_on_stderr(root: Path, level: str) -> None:
    """finding U10: a program that reads stdout gets our document, and never the command's words."""
    if level == "guarded" and not is_available():
        pytest.skip("no namespaces here")
    (root / "a.md").write_text("one\n")
    # A home folder gets no private view.
    changes = {"HOME": str(root)} if level == "watched" else {}
    done, value = run_json(root, "echo two >> a.md; exit 4", **changes)

    jsonschema.validate(value, document_schema("run"))
    assert done.code == value["exit_code"] == 4
    assert value["level"] == level
    before, after = of_bytes(b"one\n"), of_bytes(b"one\ntwo\n")
    assert value["landed"] == [[str(root / "a.md"), before, after]]
    assert "to stderr\n" in done.err


def test_a_refused_command_is_the_object_and_running_it_again_has_the_document(root: Path) -> None:
    """finding U10: exit code 75 and the 009 object; `run rerun --json` follows the same rule."""
    if not is_available():
        pytest.skip("no namespaces here")
    (root / "a.md").write_text("one\n")
    done, value = run_json(root, "echo two >> a.md", "--expect", f"a.md={'0' * 64}")
    assert (done.code, value["error_type"]) == (75, "STALE_FILE")
    check(value)
    assert (root / "a.md").read_text() == "one\n"

    run_id = json.loads(run("run", "list", "--json", cwd=root).out)[0]["id"]
    now = hashlib.sha256(b"one\n").hexdigest()
    again = run("run", "--expect", f"a.md={now}", "rerun", run_id, "--json", cwd=root)
    value = document(again)
    jsonschema.validate(value, document_schema("run", "rerun"))
    assert (again.code, len(value["landed"])) == (0, 1)
    assert (root / "a.md").read_text() == "one\ntwo\n"
    missing = run("run", "rerun", run_id, "--json", cwd=root)
    assert (missing.code, document(missing)) == (1, {"id": run_id, "found": False})


@pytest.mark.parametrize(
    ("outside", "text"),
    [
        ("echo theirs >> a.md", "echo mine >> a.md"),
        ("echo theirs >> a.md", "rm a.md"),
        ("echo theirs > folder/f", "rm -r folder"),
    ],
)
def test_old_bytes_that_nobody_knows_are_not_called_by_a_hash(root: Path, outside: str, text: str) -> None:
    """finding D13, ruling 5: the word UNKNOWN in the object and on record, where 64 zeros were."""
    if not is_available():
        pytest.skip("no namespaces here")
    (root / "a.md").write_text("one\n")
    (root / "folder").mkdir()
    done = run_with_an_outsider(root, text, outside, "--json")
    value = json.loads(done.stdout)
    check(value)
    details = value["details"]
    assert (done.returncode, value["error_type"], details["baseline_hash"]) == (75, "STALE_FILE", "UNKNOWN")
    stale = noclobber.parse_stale(done.stdout)
    assert stale is not None
    assert stale.expected == "UNKNOWN"
    event = json.loads((root / ".noclobber" / "agent_trace.jsonl").read_text().splitlines()[-1])
    assert event["payload"]["baseline_hash"] == "UNKNOWN"


def test_every_other_end_has_its_document_too(root: Path, tmp_path: Path) -> None:
    """finding U10: not found, killed, no such project, no private view, a list that cannot be read, nested."""
    ends = {
        ("--", "no-such-command"): 127,
        ("--", "sh", "-c", "kill -9 $$"): 137,
    }
    for words, code in ends.items():
        done = run("run", "--json", *words, cwd=root)
        value = document(done)
        jsonschema.validate(value, document_schema("run"))
        assert value["exit_code"] == code
        assert done.code in (code, 128 - code)  # It ends by the same signal, after its answer.
    errors = {
        ("--root", str(tmp_path / "nope")): (2, "FILE_NOT_FOUND"),
        ("--expect-file", str(tmp_path / "nope")): (2, "BAD_REQUEST"),
        ("--require", "--root", "/proc/self"): (69, "SHELL_UNAVAILABLE"),
        ("--nonsense",): (2, "BAD_REQUEST"),
    }
    for words, (code, kind) in errors.items():
        done = run("run", "--json", *words, "--", "touch", "it-ran", cwd=root)
        check(document(done))
        assert (done.code, document(done)["error_type"]) == (code, kind), words
        assert done.err == ""
    assert not (root / "it-ran").exists()


def test_inside_a_guarded_command_it_has_a_document_as_well(root: Path) -> None:
    """finding U10: it is part of the command around it, and waits for its own."""
    if not is_available():
        pytest.skip("no namespaces here")
    inner = "python -m noclobber run --json -- sh -c 'echo inner; exit 3'"
    done = run(
        "run", "--", "sh", "-c", f'PATH="$1:$PATH"; {inner}', "sh", str(Path(sys.executable).parent), cwd=root
    )
    value = document(done)
    jsonschema.validate(value, document_schema("run"))
    assert (value["level"], value["exit_code"], done.code) == ("joined", 3, 3)
    assert done.err == "inner\n"


def test_a_command_under_a_lock_has_its_document(root: Path) -> None:
    """finding U10: `lock run` follows the same rule; the lock is free afterwards."""
    (root / "part").mkdir()
    words = ("lock", "run", "part", "--json", "--holder", "ana")
    done = run(*words, "--", "sh", "-c", f"{LOUD} exit 4", cwd=root)
    jsonschema.validate(document(done), document_schema("lock", "run"))
    expected = {"folder": str(root / "part"), "holder": "ana", "exit_code": 4, "released": True}
    assert (done.code, document(done)) == (4, expected)
    assert '{"not": "ours"}\n' in done.err
    assert run("lock", "status", "part", cwd=root).code == 1

    lost = run(*words, "--", "sh", "-c", "rm part/.lock", cwd=root)
    assert document(lost)["exit_code"] == 0
    assert document(lost)["released"] is False
