"""Paths in events are relative to the root, and events carry the root's id (ruling 27)."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noclobber import AgentTraceLedger, NoclobberError, Workspace, schema
from noclobber.ledger import root as ledger_root
from noclobber.ledger.root import absolute, relative, root_of_ledger, workspace_id
from tests.rigs.commands import run
from tests.rigs.hooks import HookRig

SCHEMA = jsonschema.Draft202012Validator(schema("ledger-event"))
FORK = multiprocessing.get_context("fork")
NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1).filter(
    lambda name: name not in (".", "..")
)


@given(parts=st.lists(NAMES, min_size=1, max_size=4), root=st.sampled_from(["/", "/w", "/w/p"]))
def test_a_path_in_the_root_is_written_from_there_and_read_back(parts: list[str], root: str) -> None:
    """Ruling 27."""
    path = f"{root.rstrip('/')}/{'/'.join(parts)}"
    assert relative(root, path) == "/".join(parts)
    assert absolute(root, relative(root, path)) == path
    assert absolute(root, path) == path, "as earlier versions wrote it"


def test_a_path_outside_the_root_stays_absolute() -> None:
    """Ruling 27: a folder whose name begins like the root's is outside."""
    for path in ("/work/other/a", "/work/project2/a", "/work", "/"):
        assert relative("/work/project", path) == path
    assert relative("/work/project", "/work/project") == "."
    assert absolute("/work/project", ".") == "/work/project"
    assert (relative("/w", ""), absolute("/w", "")) == ("", "")


def _events(root: Path) -> list[dict[str, Any]]:
    found = list(AgentTraceLedger(root / ".noclobber" / "agent_trace.jsonl").events())
    for event in found:
        SCHEMA.validate(event)
    return found


def test_library_and_hook_write_one_file_under_one_name_and_id(root: Path, rig: HookRig) -> None:
    """Ruling 27: both relative, both with the id of the one workspace."""
    file = root / "docs" / "plan.md"
    file.parent.mkdir()
    with Workspace(root) as ws, ws.turn() as turn:
        turn.write_file("docs/plan.md", "one\n")
        turn.move_file("docs/plan.md", "docs/b.md")
        with pytest.raises(NoclobberError):
            turn.write_file("/etc/passwd", "x")
    assert rig.write(file, "two\n") == {}

    found = _events(root)

    assert [event["payload"]["target_file"] for event in found] == [
        "docs/plan.md",
        "docs/plan.md",
        "/etc/passwd",
        "docs/plan.md",
    ]
    assert found[1]["payload"]["destination"] == "docs/b.md"
    assert {event["workspace_id"] for event in found} == {workspace_id(str(root))}


def test_a_moved_workspace_keeps_its_id_and_a_copy_gets_one_of_its_own(root: Path) -> None:
    """Ruling 27: two copies that report to one place must be told apart."""
    (root / ".noclobber").mkdir()
    first = workspace_id(str(root))
    copy = root.parent / "copy"
    shutil.copytree(root, copy)
    moved = root.rename(root.parent / "moved")

    assert first
    assert workspace_id(str(moved)) == first
    assert workspace_id(str(copy)) not in (None, first)
    assert workspace_id(str(copy)) == workspace_id(str(copy))


def test_a_state_folder_that_is_made_anew_has_a_new_id_in_the_running_process(root: Path) -> None:
    """Ruling 27: `git clean -fdx` under an open workspace."""
    with Workspace(root) as ws, ws.turn() as turn:
        turn.write_file("a.md", "1")
        (root / ".noclobber").rename(root / "aside")  # So that its inode is not used again.
        turn.write_file("a.md", "2")
    [event] = [event for event in _events(root) if event["action_type"] == "MUTATION"]
    assert event["workspace_id"] == workspace_id(str(root))


def _ask(root: str, start: Any, answers: Any) -> None:
    start.wait()
    answers.put(workspace_id(root))


def test_processes_that_make_the_id_at_once_agree_on_it(root: Path) -> None:
    """Ruling 27: with real processes; one wins."""
    (root / ".noclobber").mkdir()
    for _ in range(5):
        start, answers = FORK.Barrier(8), FORK.Queue()
        processes = [FORK.Process(target=_ask, args=(str(root), start, answers)) for _ in range(8)]
        for process in processes:
            process.start()
        found = {answers.get(timeout=60) for _ in processes}
        for process in processes:
            process.join()
        assert len(found) == 1
        assert None not in found
        [name] = os.listdir(root / ".noclobber")
        (root / ".noclobber" / name).unlink()


def test_a_second_process_between_look_and_publish_wins(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same at the one moment that matters: both looked, and there was none."""
    (root / ".noclobber").mkdir()
    real, others = os.link, []

    def late(*args: Any, **more: Any) -> None:
        monkeypatch.setattr(os, "link", real)
        others.append(workspace_id(str(root)))
        real(*args, **more)

    monkeypatch.setattr(os, "link", late)
    assert [workspace_id(str(root))] == others
    assert len(os.listdir(root / ".noclobber")) == 1


@pytest.mark.parametrize("found", [b"", b"\0" * 33, b"not an id\n"])
def test_an_id_that_a_power_cut_emptied_is_replaced(root: Path, found: bytes) -> None:
    """N-power."""
    (root / ".noclobber").mkdir()
    made = workspace_id(str(root))
    [file] = (root / ".noclobber").iterdir()
    file.write_bytes(found)
    again = workspace_id(str(root))
    assert again not in (None, made)
    assert again == workspace_id(str(root))


def test_without_hard_links_there_is_an_id_all_the_same(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAT has none."""
    (root / ".noclobber").mkdir()

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert workspace_id(str(root)) == workspace_id(str(root)) is not None
    assert len(os.listdir(root / ".noclobber")) == 1


def test_an_event_without_an_id_is_better_than_no_event(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ruling 13: the id is no reason to fail after a commit."""
    monkeypatch.setattr(ledger_root, "_read", lambda *_: None)
    monkeypatch.setattr(ledger_root, "_make", lambda *_: None)
    with Workspace(root) as ws, ws.turn() as turn:
        turn.write_file("a.md", "1")
    [event] = _events(root)
    assert "workspace_id" not in event
    assert event["payload"]["target_file"] == "a.md"


def test_a_link_in_place_of_the_state_folder_or_the_id_is_not_followed(root: Path, tmp_path: Path) -> None:
    """S20: nothing is made elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (root / ".noclobber").symlink_to(elsewhere)
    assert workspace_id(str(root)) is None
    assert os.listdir(elsewhere) == []
    (root / ".noclobber").unlink()
    (root / ".noclobber").mkdir()
    secret = tmp_path / "secret"
    secret.write_text("0" * 32)
    (root / ".noclobber" / f"workspace_id.{os.stat(root / '.noclobber').st_ino}").symlink_to(secret)
    assert workspace_id(str(root)) != "0" * 32


def test_the_root_of_a_ledger_is_known_from_its_place(root: Path) -> None:
    """Readers are given a ledger's path."""
    assert root_of_ledger(f"{root}/.noclobber/agent_trace.jsonl") == str(root)
    assert root_of_ledger(f"{root}/copy.jsonl") is None


def test_status_shows_whole_paths_for_old_and_new_lines(root: Path) -> None:
    """Ruling 27: who reads `status --json` gets what they always got."""
    (root / "a.md").write_text("1")
    with Workspace(root, unread="deny") as ws, ws.turn() as turn:
        with pytest.raises(NoclobberError):
            turn.write_file("a.md", "2")
        payload = {"tool_name": "w", "target_file": f"{root}/a.md"}
        result = {"status": "DENIED", "error_type": "UNREAD_FILE"}
        ws.ledger.append({"action_type": "MUTATION_REFUSED", "payload": payload, "result": result})
    refusals = json.loads(run("status", "--json", cwd=root).out)["refusals"]
    assert [refusal["path"] for refusal in refusals] == [str(root / "a.md")] * 2
