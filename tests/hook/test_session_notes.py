"""What hooks note of a session as a whole."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from noclobber.core.switches import runtime_folder
from noclobber.hook.session_notes import settle_project
from tests.rigs.hooks import HookRig, refusal


def test_the_project_of_a_session_is_settled_by_its_first_event(rig: HookRig, root: Path, file: Path) -> None:
    """finding S5, ruling 16: a nested repository that appears later changes nothing; nor does a `cd`."""
    (root / "noclobber.toml").write_text('unread = "deny"\n')
    rig.call("claude-code", rig.event("SessionStart", source="startup"), "note")
    nested = root / "docs"
    (nested / ".git").mkdir(parents=True)
    (nested / ".noclobber").mkdir()
    (nested / "b.txt").write_text("theirs\n")

    given = {"file_path": str(nested / "b.txt"), "content": "mine\n"}
    answer = rig.ask("Write", given, tool_use_id="w", cwd=str(nested))

    assert refusal(answer)["error_type"] == "UNREAD_FILE"
    assert rig.kinds() == ["MUTATION_REFUSED"]  # In the ledger of the session's project.


def test_parallel_first_events_settle_on_one_project(rig: HookRig, root: Path) -> None:
    """Ruling 16: whoever comes second takes what the first one found."""
    found = iter([str(root), str(root.parent)])

    def find_late() -> str:
        settle_project("claude-code", "s9", lambda: next(found))
        return next(found)

    assert settle_project("claude-code", "s9", find_late) == str(root)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_first_events_in_threads_of_one_process_settle_on_one_project(
    rig: HookRig, root: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """
    Ruling 16: an agent framework asks for several agents of a session at once, in threads of one process.

    The second one comes all its way while the first is about to publish what it found, or just has.
    """
    second_looked, first_is_there, second_is_done = (threading.Event() for _ in range(3))
    first, link, results = threading.get_ident(), os.link, []

    def link_slowly(*args: Any, **more: Any) -> None:
        if threading.get_ident() == first and moment == "after":
            link(*args, **more)
        if threading.get_ident() == first and not first_is_there.is_set():
            first_is_there.set()
            assert second_is_done.wait(60)
        if threading.get_ident() != first or moment == "before":
            link(*args, **more)

    def find(is_second: bool) -> str:
        if not is_second:
            assert second_looked.wait(60)
            return str(root)
        second_looked.set()  # It has looked, and there was nothing.
        assert first_is_there.wait(60)
        return str(root.parent)

    def settle() -> None:
        try:
            results.append(settle_project("claude-code", "s9", lambda: find(True)))
        finally:
            second_is_done.set()

    monkeypatch.setattr(os, "link", link_slowly)
    second = threading.Thread(target=settle)
    second.start()
    results.append(settle_project("claude-code", "s9", lambda: find(False)))
    second.join()

    results.append(settle_project("claude-code", "s9", lambda: "/nobody asks"))
    assert results == [str(root if moment == "after" else root.parent)] * 3
    assert len(os.listdir(runtime_folder())) == 1  # Nothing is left of what did not count.


def test_a_project_that_is_gone_is_replaced_by_one_other(
    rig: HookRig, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ruling 16: the second of two events that find it gone takes what the first has settled since."""
    gone = root / "gone"
    gone.mkdir()
    assert settle_project("claude-code", "s9", lambda: str(gone)) == str(gone)
    gone.rmdir()
    isdir = os.path.isdir
    others: list[str] = []

    def look_and_wait(path: str) -> bool:
        found = isdir(path)
        if path == str(gone) and not others:
            others.append("")
            others.append(settle_project("claude-code", "s9", lambda: str(root)))
        return found

    monkeypatch.setattr(os.path, "isdir", look_and_wait)

    assert settle_project("claude-code", "s9", lambda: str(root.parent)) == str(root)
    assert others == ["", str(root)]
