"""State that came with a folder and was made to hurt: every command says something, and ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from noclobber import Workspace
from noclobber.cli import main
from noclobber.core.clock import iso8601
from noclobber.core.project import KEPT_FOLDER, ledger_path, state_folder
from noclobber.disk.commit import leftovers
from tests.rigs.commands import environment, run

LINES = {
    "a list as a name": {"seq": 1, "time": "x", "action_type": "MUTATION", "identity": {"agent_id": []}},
    "a number as a time": {"seq": 1, "time": 5, "action_type": "MUTATION_CONFLICT"},
    "a list as a time": {"seq": [1], "time": [1], "action_type": "LOCK_CONTENTION"},
}


@pytest.fixture
def marked(root: Path) -> Path:
    """A project with a state folder."""
    with Workspace(root) as workspace, workspace.turn() as turn:
        turn.write_file("a.md", b"x\n")
    return root


@pytest.mark.broken_ledger
@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
@pytest.mark.parametrize("words", [("status",), ("status", "--json"), ("ledger", "show"), ()], ids=" ".join)
def test_a_line_of_the_ledger_that_no_version_wrote_stops_no_command(
    marked: Path, line: object, words: tuple[str, ...]
) -> None:
    """N-cli: it may have come with the folder."""
    for path in (Path(ledger_path(str(marked))), marked / ".lock-ledger.jsonl"):
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
    done = run(*words, cwd=marked)
    assert "internal error" not in done.err
    assert "Traceback" not in done.err
    assert done.out


@pytest.mark.broken_ledger
@pytest.mark.parametrize("number", ["1e999", "Infinity", "NaN"])
@pytest.mark.parametrize("words", [("status",), ("ledger", "show"), ("ledger", "tail")], ids=" ".join)
def test_a_number_that_json_does_not_have_is_not_passed_on(
    marked: Path, number: str, words: tuple[str, ...]
) -> None:
    """N-cli: `--json` is one document that every parser takes."""
    with Path(ledger_path(str(marked))).open("a") as file:
        file.write(f'{{"seq":{number},"time":"2026-11-17T22:00:00Z","action_type":"MUTATION_CONFLICT"}}\n')

    def refuse(name: str) -> None:
        raise AssertionError(name)

    json.loads(run(*words, "--json", cwd=marked).out, parse_constant=refuse)


@pytest.mark.broken_ledger
def test_members_in_members_do_not_end_an_export(marked: Path) -> None:
    """N-cli."""
    deep = "[" * 400 + "]" * 400
    line = f'{{"seq":2,"time":"x","action_type":"MUTATION","payload":{{"x":{deep}}}}}\n'
    with Path(ledger_path(str(marked))).open("a") as file:
        file.write(line)
    done = run("ledger", "export", "--format", "otlp", cwd=marked)
    assert "internal error" not in done.err
    assert "nested too deeply" in done.out
    json.loads(done.out)


@pytest.mark.broken_ledger
def test_a_long_name_does_not_make_every_row_as_long(marked: Path) -> None:
    """N-cli: forty events beside one with a name of a megabyte were forty megabytes."""
    ledger = Path(ledger_path(str(marked)))
    short = json.dumps({"seq": 3, "time": "x", "action_type": "MUTATION", "identity": {"agent_id": "ana"}})
    long = json.dumps(
        {"seq": 2, "time": "x", "action_type": "MUTATION", "identity": {"agent_id": "a" * 100_000}}
    )
    with ledger.open("a") as file:
        file.write("\n".join([long, *[short] * 40]) + "\n")
    assert len(run("ledger", "show", cwd=marked).out) < 150_000


@pytest.mark.parametrize("words", [("undo",), ("commit", "--mine")], ids=" ".join)
def test_a_long_name_does_not_fill_the_list_of_names(root: Path, words: tuple[str, ...]) -> None:
    """N-cli: whose writes are on record was told with a name of any length."""
    with Workspace(root) as workspace, workspace.turn(agent_id="a" * 100_000) as turn:
        turn.write_file("a.md", b"x\n")
    done = run(*words, cwd=root)
    assert done.code == 2
    assert "aaaa…aaaa" in done.err
    assert len(done.err) < 1000


@pytest.mark.parametrize("name", ["settings.json", "settings.local.json"])
@pytest.mark.parametrize(
    "words",
    [("install", "claude-code"), ("install", "claude-code", "--uninstall"), ("status",), ("--json",)],
    ids=" ".join,
)
def test_a_fifo_in_the_place_of_settings_is_not_waited_for(
    root: Path, tmp_path: Path, name: str, words: tuple[str, ...]
) -> None:
    """N-install: a repository may bring one."""
    (root / ".git").mkdir()
    (root / ".claude").mkdir()
    os.mkfifo(root / ".claude" / name)
    (tmp_path / "home").mkdir()
    done = run(*words, cwd=root, HOME=str(tmp_path / "home"))
    assert done.code in (0, 1, 3)
    assert "internal error" not in done.err


@pytest.fixture
def kept(marked: Path) -> Path:
    """Where a kept version would be."""
    folder = Path(state_folder(str(marked)), KEPT_FOLDER)
    folder.mkdir(exist_ok=True)
    return folder / "kept-ab12-None~a.md"


def test_a_date_that_no_calendar_has_is_shown_and_the_file_can_be_dropped(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-cli: it stopped the very commands that would remove the file."""
    kept.write_bytes(b"x")
    found = leftovers._status

    def dated(path: str) -> os.stat_result | None:
        status = found(path)
        if status is None or not path.endswith(kept.name):
            return status
        return os.stat_result([*status[:8], 1e17, status[9]])

    monkeypatch.setattr(leftovers, "_status", dated)  # tmpfs takes such a date, and ext4 does not.
    root = str(kept.parents[2])
    assert main(["kept", "list", "--root", root]) == 0
    assert "9999-12-31" in capsys.readouterr().out
    assert main(["status", "--root", root]) == 0
    monkeypatch.undo()
    assert iso8601(1e17).startswith("9999-12-31")


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_what_is_no_file_is_no_kept_version(marked: Path, kept: Path, tmp_path: Path, kind: str) -> None:
    """N-cli: a link would show any file of this user, and a FIFO would be waited for."""
    (tmp_path / "secret").write_text("secret\n")
    if kind == "link":
        kept.symlink_to(tmp_path / "secret")
    else:
        os.mkfifo(kept)
    for words in (("kept", "show", "kept-ab12"), ("kept", "restore", "kept-ab12", "z.md")):
        done = run(*words, cwd=marked)
        assert done.code == 3
        assert "secret" not in done.out
    assert not (marked / "z.md").exists()
    assert os.path.lexists(kept)


@pytest.mark.parametrize("verb", ["show", "diff", "drop"])
def test_json_may_stand_before_the_id_of_a_run(marked: Path, verb: str) -> None:
    """N-cli: it was taken for an id."""
    done = run("run", verb, "--json", "nope", cwd=marked)
    assert json.loads(done.out) == {"id": "nope", "found": False}


def test_a_write_without_a_stdin_says_so(marked: Path) -> None:
    """N-cli."""
    done = subprocess.run(
        ["sh", "-c", '"$@" <&-', "sh", sys.executable, "-m", "noclobber", "write", "--any", "n.md"],
        cwd=marked,
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert done.returncode == 2
    assert "stdin is closed" in done.stderr
