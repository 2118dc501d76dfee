"""How events come to be recorded: the ledger is opened once, and before the commit."""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import noclobber
from noclobber import AgentTraceLedger, Edit, LedgerError, MissingFileError, StaleFileError, Workspace
from noclobber.disk import metadata
from noclobber.guard.recording import Recorder
from noclobber.hosts.hook_entries import START
from noclobber.ledger import open_file
from noclobber.ledger.open_file import LightLedger
from tests.rigs.hooks import HookRig, refusal

NAME = "agent_trace.jsonl"


@pytest.fixture(autouse=True)
def file(root: Path) -> Path:
    (root / "a.md").write_bytes(b"v1\n")
    return root / "a.md"


@pytest.fixture
def openings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every successful os.open() of a ledger."""
    found: list[str] = []
    real: Callable[..., int] = os.open

    def counted(path: Any, *args: Any, **more: Any) -> int:
        descriptor = real(path, *args, **more)
        if str(path).endswith(NAME):
            found.append(str(path))
        return descriptor

    monkeypatch.setattr(os, "open", counted)
    return found


def test_a_folder_that_another_thread_makes_at_the_same_moment_is_no_failure(root: Path) -> None:
    """R-ledger: the first two writes of a workspace; both find no folder, and one of them makes it."""

    class Late(AgentTraceLedger):
        tries = 0

        def prepare(self, events: int = 1) -> None:
            self.tries += 1
            if self.tries == 1:
                os.mkdir(root / ".noclobber")
                raise LedgerError(self.path, "there was no folder yet")
            super().prepare(events)

    ledger = Late(root / ".noclobber" / NAME)
    with ledger:
        assert Recorder(str(root), ledger).prepare() is False
        assert ledger.tries == 2


def test_many_writes_of_a_workspace_open_the_ledger_once(root: Path, openings: list[str]) -> None:
    """finding C3: writes, edits, deletes and refusals alike."""
    with Workspace(root) as ws, ws.turn() as turn:
        for number in range(5):
            turn.write_file("a.md", f"{number}\n")
        turn.write_files({"a.md": b"x\n", "b.md": b"y\n"})
        (root / "a.md").write_bytes(b"theirs\n")
        with pytest.raises(StaleFileError):
            turn.write_file("a.md", b"mine\n")
        turn.delete_file("b.md")
        assert len(openings) == 2, "once to record, and once more to say who wrote what was refused (N-who)"
        assert ws.ledger.verify().event_count == 9


def test_a_hook_opens_the_ledger_once(rig: HookRig, file: Path, openings: list[str]) -> None:
    """finding C3: also when it has to make the state folder, and when it refuses."""
    given = {"file_path": str(file), "content": "x\n"}
    rig.read(file)

    assert rig.ask("Write", given, tool_use_id="first") == {}
    assert len(openings) == 1
    file.write_bytes(b"theirs\n")
    assert refusal(rig.ask("Write", given, tool_use_id="second"))["error_type"] == "STALE_FILE"
    assert len(openings) == 3  # Once for the event, and once to see who wrote what is there (ruling 21).
    assert rig.kinds() == ["MUTATION_CONFLICT"]


def test_a_hook_that_lets_a_write_through_does_not_load_the_ledger(root: Path, rig: HookRig) -> None:
    """N-speed, finding C3: it opens the file; line, tail and ledger are loaded by whoever records."""
    AgentTraceLedger(_state(root)).append({"action_type": "X"})
    given = {"file_path": str(root / "new.md"), "content": "x"}
    payload = rig.tool("PreToolUse", "Write", given, tool_use_id="w")
    program = (
        "import sys\n"
        f"sys.path.append({os.path.dirname(os.path.dirname(os.path.dirname(START)))!r})\n"
        "from noclobber.hook.main import main\n"
        "main(['claude-code', 'check'])\n"
        "sys.stderr.write(' '.join(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        input=json.dumps(payload).encode(),
        capture_output=True,
        env={"XDG_RUNTIME_DIR": str(rig.runtime)},
        timeout=60,
    )
    assert done.stdout == b"", done.stdout
    loaded = {name for name in done.stderr.decode().split() if name.startswith("noclobber.ledger")}
    assert loaded == {"noclobber.ledger", "noclobber.ledger.open_file"}


# -- refused before the commit -----------------------------------------------------------------------------


def _state(root: Path) -> Path:
    (root / ".noclobber").mkdir(exist_ok=True)
    return root / ".noclobber" / NAME


def _someones_notes(root: Path) -> None:
    _state(root).write_bytes(b"my notes\n")


def _a_folder(root: Path) -> None:
    _state(root).mkdir()


def _a_link(root: Path) -> None:
    _state(root).symlink_to("/dev/null")


def _a_pipe(root: Path) -> None:
    os.mkfifo(_state(root))


@pytest.mark.parametrize("broken", [_someones_notes, _a_folder, _a_link, _a_pipe])
@pytest.mark.parametrize("through", ["library", "hook"])
@pytest.mark.broken_ledger
def test_what_no_append_could_follow_is_refused_before_the_commit(
    root: Path, rig: HookRig, broken: Callable[[Path], None], through: str
) -> None:
    """Ruling 13: by the library and by a hook for the same reasons; the hook looked for fewer."""
    broken(root)
    if through == "library":
        with Workspace(root) as ws, ws.turn() as turn, pytest.raises(LedgerError):
            turn.write_file("a.md", b"v2\n")
    else:
        answer = rig.write(root / "a.md", "v2\n")
        assert refusal(answer)["error_type"] == "LEDGER_FAILED"
    assert (root / "a.md").read_bytes() == b"v1\n"


@pytest.mark.parametrize("make", [AgentTraceLedger, LightLedger])
def test_a_torn_end_refuses_nothing(root: Path, make: Callable[[str], Any]) -> None:
    """R-ledger: a crash tore the last line; the append sets it aside, so the write may go ahead."""
    path = _state(root)
    with AgentTraceLedger(path) as earlier:
        earlier.append({"action_type": "X"})
    with path.open("ab") as file:
        file.write(b'{"seq":2,"time"')
    ledger = make(str(path))

    ledger.prepare()

    assert ledger.append({"action_type": "X"}).set_aside
    assert AgentTraceLedger(path).verify().event_count == 3


def test_a_ledger_that_was_only_prepared_is_closed_with_its_owner(root: Path) -> None:
    """N-clean: a program that runs hooks in its own process keeps no file open for each."""
    gc.collect()  # What earlier tests left behind must not go away in between.
    before = set(open_file._OPEN)
    for _ in range(3):
        LightLedger(str(_state(root))).prepare()
    gc.collect()
    assert before == open_file._OPEN


def test_nobody_is_kept_out_between_prepare_and_append(root: Path) -> None:
    """finding C3: a commit may take long, so the ledger's mutex is not held meanwhile."""
    _state(root)
    with AgentTraceLedger(_state(root)) as ledger:
        recorder = Recorder(str(root), ledger)
        assert recorder.prepare() is False
        other = os.open(ledger.path, os.O_RDONLY)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(other)


def test_the_state_folder_is_made_by_the_first_event(root: Path) -> None:
    """N-git: and it keeps itself out of git."""
    with AgentTraceLedger(root / ".noclobber" / NAME) as ledger:
        recorder = Recorder(str(root), ledger)
        assert [recorder.prepare(), recorder.prepare()] == [True, False]
    assert (root / ".noclobber" / ".gitignore").exists()


def test_two_processes_may_make_the_state_folder_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ruling 13: the other one made it after our ledger was not found, and before we looked for the folder."""
    recorder = Recorder(str(root), LightLedger(f"{root}/.noclobber/{NAME}"))
    real = recorder._make_state_folder

    def lose_the_race() -> bool:
        assert real() is True  # By the other process.
        return real()

    monkeypatch.setattr(recorder, "_make_state_folder", lose_the_race)
    assert recorder.prepare() is False


@pytest.mark.parametrize(
    ("number", "words"), [(errno.EROFS, "Read-only file system"), (errno.EACCES, "Permission denied")]
)
def test_a_state_folder_that_cannot_be_made_is_the_reason_that_is_told(
    root: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    """finding U9: a read-only project was told that there is no such file."""

    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("noclobber.disk.commit.open_stores.for_workspace", refused)
    with Workspace(root) as ws, ws.turn() as turn:
        turn.read_file("a.md")
        with pytest.raises(LedgerError) as told:
            turn.write_file("a.md", "v2\n")
    assert told.value.path == str(root / ".noclobber")
    assert f"cannot be created ({words})" in told.value.message
    assert "Make the project's folder writable" in told.value.message
    assert (root / "a.md").read_bytes() == b"v1\n"


@pytest.mark.parametrize("tool", ["move_file", "delete_file", "edit_file"])
def test_a_turn_that_deleted_a_file_itself_is_not_told_of_another_actor(root: Path, tool: str) -> None:
    """finding U9: delete, then move."""
    arguments: dict[str, tuple[Any, ...]] = {"move_file": ("b.md",), "edit_file": ([Edit("v1", "v2")],)}
    with Workspace(root) as ws, ws.turn() as turn:
        turn.read_file("a.md")
        turn.delete_file("a.md")
        with pytest.raises(MissingFileError, match="there is no such file"):
            getattr(turn, tool)("a.md", *arguments.get(tool, ()))


def test_what_was_not_kept_of_the_metadata_is_on_record(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding D13, R-ledger: a colleague's file becomes the writer's own; the result and the event say so."""
    real = metadata.give
    monkeypatch.setattr(metadata, "give", lambda *given, **more: real(*given, **more) or ("owner",))

    with ws.turn(agent_id="a") as turn:
        one = turn.write_file("a.md", b"v2\n")
        many = turn.write_files({"a.md": b"v3\n", "b.md": b"new\n"})
        direct = noclobber.replace_if_unchanged(Path(ws.root) / "a.md", None, b"v4\n", ledger=ws.ledger)

    assert (one.not_kept, many["a.md"].not_kept, many["b.md"].not_kept) == (("owner",), ("owner",), ())
    assert direct.not_kept == ("owner",)
    events = [event["payload"].get("not_kept") for event in ws.ledger.events()]
    assert events == [["owner"], ["owner"], None, ["owner"]]
