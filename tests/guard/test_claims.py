"""Claims: what a hook lays on a file between its check and its host's write."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import noclobber
from noclobber.disk.commit.change_set import TreeRow, commit_changes
from noclobber.disk.commit.committer import Committer
from noclobber.errors import ClaimedError
from noclobber.guard import claims
from noclobber.guard.fence import WriteFence
from noclobber.postgres import shared_volume
from noclobber.postgres.coordinator import _connection
from tests.conftest import sha256
from tests.rigs import postgres
from tests.rigs.hooks import HookRig
from tests.rigs.locks import ToldClock


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a test may take longer than a claim lasts."""
    monkeypatch.setattr(claims, "TAKE_OVER_S", claims.LIFE_S)


def test_a_claim_is_seen_from_every_workspace_above_and_below(root: Path) -> None:
    """Workspaces inside workspaces: the claim lies in one, and the commit happens in another."""
    inner = root / "packages" / "one"
    inner.mkdir(parents=True)
    (root / ".noclobber").mkdir()
    file = inner / "a.txt"
    file.write_bytes(b"")

    claims.acquire(str(root), str(file), "owner", "call")
    (inner / ".noclobber").mkdir()

    assert claims.check(str(inner), str(file)).owner == "owner"
    assert claims.check(str(inner), str(file), "owner") is None
    with pytest.raises(ClaimedError):
        claims.refuse_if_claimed(str(inner), str(file))
    assert claims.release(str(inner), str(file), "somebody else") is False
    assert claims.release(str(inner), str(file), "owner") is True
    claims.refuse_if_claimed(str(inner), str(file))


def test_one_claimed_file_of_many_refuses_the_commit(root: Path) -> None:
    """N-claim, N-shell: of the files of a folder only the first is asked about locks, and each about claims."""
    rows = []
    (root / ".noclobber").mkdir()
    (root / "new").mkdir()
    for number in range(60):
        file = root / f"f{number}"
        file.write_bytes(b"old")
        (root / f"new/{number}").write_bytes(b"new")
        rows.append(TreeRow("write", "file", str(file), sha256(b"old"), str(root / f"new/{number}")))
    claims.acquire(str(root), str(root / "f55"), "agent", "call")

    def commit(owner: str) -> Any:
        return commit_changes(Committer(str(root)), rows, fence=WriteFence(str(root), owner=owner))

    with pytest.raises(ClaimedError) as refused:
        commit("another agent")
    assert refused.value.path == str(root / "f55")
    assert {(root / f"f{number}").read_bytes() for number in range(60)} == {b"old"}
    assert len(commit("agent")) == 60


def test_a_commit_of_the_library_waits_for_a_claim_or_gives_up(root: Path) -> None:
    """N-claim: inside the commit's own critical section, so that neither slips past the other."""
    file = root / "a.txt"
    file.write_bytes(b"old")
    (root / ".noclobber").mkdir()
    committer = Committer(str(root))
    fence = WriteFence(str(root))

    def commit() -> Any:
        return committer.replace(str(file), sha256(b"old"), b"new", fence=fence)

    claims.acquire(str(root), str(file), "agent", "call")
    with pytest.raises(ClaimedError) as refused:
        claims.retrying(commit, 0.05)
    assert refused.value.resolution == "RETRY_LATER"
    assert file.read_bytes() == b"old"

    timer = threading.Timer(0.05, claims.release, (str(root), str(file), "agent"))
    timer.start()
    assert claims.retrying(commit, 10.0).sha256 == sha256(b"new")
    timer.join()


def test_a_claim_that_nobody_made_costs_one_look_for_each_folder(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-claim: every guarded write of the library asks, so it opens, lists and reads nothing."""
    deep = root / "a" / "b" / "c" / "d" / "file.txt"
    looks: list[str] = []
    others: list[Any] = []
    access = os.access
    with monkeypatch.context() as patched:

        def look(path: str, mode: int) -> bool:
            looks.append(path)
            return access(path, mode)

        patched.setattr(os, "access", look)
        for name in ("open", "stat", "lstat", "listdir", "scandir"):
            patched.setattr(os, name, lambda *given, **_: others.append(given))
        found = claims.check(str(root), str(deep))
    above = len(deep.parents) - 1  # A claim may stand in any folder above it, but not in the root of all.
    assert (found, len(looks), others) == (None, above, [])


def test_who_waits_takes_over_a_claim_that_came_to_nothing(
    rig: HookRig, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding H8: the host said no more of a patch that failed, or that a person declined."""
    file = root / "a.txt"
    file.write_text("old\n")
    given = {
        "command": "*** Begin Patch\n*** Update File: a.txt\n@@\n-nobody wrote this\n+x\n*** End Patch\n"
    }
    assert rig.call("codex", rig.tool("PreToolUse", "apply_patch", given, tool_use_id="p"), "check")[0] == {}
    assert claims.check(str(root), str(file)) is not None

    monkeypatch.setattr(claims, "TAKE_OVER_S", 0.0)  # As if the time had passed.

    assert claims.check(str(root), str(file)) is None
    other = HookRig(root, rig.runtime, session="s2")
    assert other.write(file, "second\n") == {}
    assert claims.release(str(root), str(file), "codex/s1/main") is False


def test_a_hook_waits_longer_than_a_guarded_write_before_it_takes_a_claim_over(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-claim: on a busy machine a host may take half a second from its check to its write."""
    (root / ".noclobber").mkdir()
    file = root / "a.txt"
    file.write_bytes(b"")
    monkeypatch.setattr(claims, "TAKE_OVER_S", 0.4)
    clock = ToldClock(time.time())
    claims.acquire(str(root), str(file), "first", "call", clock=clock)
    clock.sleep(0.5)

    claims.refuse_if_claimed(str(root), str(file), "library", clock)
    with pytest.raises(ClaimedError):
        claims.acquire(str(root), str(file), "second", "call", patience_s=0.0, clock=clock)
    clock.sleep(0.8)
    taken = claims.acquire(str(root), str(file), "second", "call", patience_s=0.0, clock=clock)
    assert taken.owner == "second"


@pytest.mark.parametrize("is_end_of_turn", [False, True])
def test_a_release_leaves_a_claim_that_was_taken_over_meanwhile(
    root: Path, monkeypatch: pytest.MonkeyPatch, is_end_of_turn: bool
) -> None:
    """N-claim: between the look at the own claim and its removal another agent takes it over."""
    (root / ".noclobber").mkdir()
    file = root / "a.txt"
    file.write_bytes(b"")
    monkeypatch.setattr(claims, "TAKE_OVER_S", 0.0)
    claims.acquire(str(root), str(file), "first", "call")
    look = claims._read

    def look_and_be_overtaken(name: str, path: str) -> claims.Claim | None:
        found = look(name, path)
        monkeypatch.setattr(claims, "_read", look)
        claims.acquire(str(root), str(file), "second", "call")
        return found

    monkeypatch.setattr(claims, "_read", look_and_be_overtaken)
    if is_end_of_turn:
        claims.release_all(str(root), "first")
    else:
        assert claims.release(str(root), str(file), "first") is False

    assert [claim.owner for claim in claims.live(str(root))] == ["second"]
    assert claims.release(str(root), str(file), "second") is True
    assert claims.live(str(root)) == []


@pytest.mark.parametrize("how", ["in place", "renamed", "created", "deleted"])
def test_a_claim_on_a_file_that_has_changed_is_not_taken_over(
    root: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finding H8: then the host is at work, and may not be done."""
    (root / ".noclobber").mkdir()
    file = root / "a.txt"
    if how != "created":
        file.write_text("old\n")
    claims.acquire(str(root), str(file), "owner", "call")
    monkeypatch.setattr(claims, "TAKE_OVER_S", 0.0)
    assert claims.check(str(root), str(file)) is None

    if how == "deleted":
        file.unlink()
    elif how == "renamed":
        (root / "b.txt").write_text("old\n")
        os.rename(root / "b.txt", file)
    else:
        file.write_text("new\n")

    assert claims.check(str(root), str(file)) is not None


@pytest.mark.parametrize("host", ["claude-code", "codex"])
def test_a_claim_ends_with_the_agents_next_event(rig: HookRig, root: Path, host: str) -> None:
    """finding H8: these hosts carry out one call after the other, so the one before is over."""
    file, other = root / "a.txt", root / "b.txt"
    file.write_text("old\n")
    other.write_text("other\n")
    tool, given = "Write", {"file_path": str(file), "content": "x"}
    if host == "codex":
        tool, given = "apply_patch", {"command": f"*** Begin Patch\n*** Delete File: {file}\n*** End Patch\n"}
    assert rig.call(host, rig.tool("PreToolUse", tool, given, tool_use_id="w"), "check")[0] == {}
    assert claims.check(str(root), str(file)) is not None

    shown = {"file": {"content": "other\n", "startLine": 1, "numLines": 2, "totalLines": 2}}
    if host == "codex":
        seen = rig.tool("PostToolUse", "Bash", {"command": "cat b.txt"}, tool_response="other\n")
    else:
        seen = rig.tool("PostToolUse", "Read", {"file_path": str(other)}, tool_response=shown)
    rig.call(host, seen, "note")

    assert claims.check(str(root), str(file)) is None


def test_another_call_of_the_same_message_does_not_end_a_claim(rig: HookRig, root: Path) -> None:
    """finding H8, finding H9: Gemini asks about all calls of a message before it carries out the first."""
    file, other = root / "a.txt", root / "b.txt"
    file.write_text("old\n")
    for path in (file, other):
        given = {"file_path": str(path), "content": "x"}
        assert rig.call("gemini", rig.tool("BeforeTool", "write_file", given), "check")[0] == {}

    assert claims.check(str(root), str(file)) is not None


# -- one meaning: a file, or a row of a server that machines share -------------------------------------------


class ClaimRig:
    """A folder with one file, whose claims are in one of the two places."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, *, on_server: bool) -> None:
        self.root, self._monkeypatch, self._on_server = root, monkeypatch, on_server
        self.file = root / "a.txt"
        self.file.write_text("old\n")
        (root / ".noclobber").mkdir()
        if on_server:
            monkeypatch.setenv("NOCLOBBER_COORDINATOR", postgres.coordinator())
            monkeypatch.setattr(shared_volume, "is_shared_volume", lambda _: True)
        monkeypatch.setattr(claims, "TAKE_OVER_S", claims.LIFE_S)  # On a busy machine a test may take longer.

    def claim(self, owner: str = "other", **options: Any) -> claims.Claim:
        return claims.acquire(str(self.root), str(self.file), owner, "call", **options)

    def may_take_over(self) -> None:
        """Claims that are made from now on are old enough at once."""
        self._monkeypatch.setattr(claims, "TAKE_OVER_S", 0.0)

    def write(self, wait_s: float = 0.05) -> noclobber.WriteResult:
        with noclobber.Workspace(self.root, wait_s=wait_s) as workspace, workspace.turn(agent_id="w") as turn:
            turn.read_file("a.txt")
            return turn.write_file("a.txt", "ours\n")


@pytest.fixture(params=["files", "server"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ClaimRig]:
    """Both places, one after the other."""
    (tmp_path / "p").mkdir()
    yield ClaimRig(tmp_path / "p", monkeypatch, on_server=request.param == "server")
    _connection.cache_clear()


def test_a_guarded_write_waits_for_a_claim_or_is_refused(place: ClaimRig) -> None:
    """N-claim, N-machines: nothing is written, and the refusal names who is at work."""
    place.claim()
    with pytest.raises(ClaimedError) as refused:
        place.write()
    assert refused.value.details["holder"] == "other"
    assert refused.value.resolution == "RETRY_LATER"
    assert place.file.read_text() == "old\n"
    assert claims.release(str(place.root), str(place.file), "other") is True
    assert claims.release(str(place.root), str(place.file), "other") is False
    place.write()
    assert place.file.read_text() == "ours\n"


def test_one_agent_has_a_claim_at_a_time_and_may_claim_again(place: ClaimRig) -> None:
    """N-claim, N-machines: a message may have several calls for one file."""
    place.claim("first")
    place.claim("first")
    with pytest.raises(ClaimedError):
        place.claim("second", patience_s=0.0)
    assert [claim.owner for claim in claims.live(str(place.root))] == ["first"]
    claims.release_all(str(place.root), "second")
    assert len(claims.live(str(place.root))) == 1
    claims.release_all(str(place.root), "first")
    assert claims.live(str(place.root)) == []
    place.claim("second", patience_s=0.0)


def test_a_claim_that_came_to_nothing_is_taken_over(place: ClaimRig) -> None:
    """finding H8, N-machines: the host said no more of a call; the file is what it was."""
    place.may_take_over()
    place.claim("silent")
    place.claim("second", patience_s=0.0)
    place.write()
    assert place.file.read_text() == "ours\n"


def test_a_claim_whose_host_is_at_work_is_not_taken_over(place: ClaimRig) -> None:
    """finding H8, N-machines: then its host is at work, and may not be done."""
    place.may_take_over()
    place.claim("at work")
    place.file.write_text("half of it")
    with pytest.raises(ClaimedError):
        place.claim("second", patience_s=0.0)
    with pytest.raises(ClaimedError):
        place.write()
    assert place.file.read_text() == "half of it"
