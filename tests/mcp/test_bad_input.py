"""
Every tool, any arguments: an answer that clients can read, nothing outside the roots, no loss by an error.

Arguments are drawn from what each tool's schema names, with values that are right, nearly right, hostile or any
JSON at all. The tree has what leads out of it: links to files and folders, hard links, locks of others.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noclobber.lock.lock import DeliverableLock
from noclobber.mcp import dispatch
from noclobber.mcp.connection import ClientConnection, Workspaces
from noclobber.mcp.roots import Roots
from noclobber.mcp.tools import TOOLS
from tests.conftest import sha256
from tests.rigs.mcp import check_answer

READING = {"read_file", "read_text_file", "read_media_file", "read_multiple_files"}
LOCKING = {"lock_acquire", "lock_renew", "lock_release"}
LONGEST_WAIT_S = 0.05

ODD_NAMES = st.sampled_from(
    [
        *("plan.md", "stale.md", "new.md", "part", "part/a.md", "part/new.md", "deep/er/new.md", "theirs"),
        *("theirs/a.md", "out", "out/secret", "out/new", "file-out", "hard", "loop", "nowhere", "fifo"),
        *("../outside/secret", "/etc/passwd", "/proc/self/mem", "/dev/null", "/", "~", "~/x", "", ".", ".."),
        *(".noclobber", ".noclobber/agent_trace.jsonl", ".NOCLOBBER/x", "part/.lock", "theirs/.lock"),
        *(".lock-ledger.jsonl", "part/.LOCK/x", "theirs/../stale.md", "part/../out/new", "a\0b", "bad\udcff"),
        *("x" * 300, "d/" * 300 + "x", "noclobber.toml", "\u202e.md", "a\nb", "second:plan.md"),
    ]
)


def mostly(usual: st.SearchStrategy[Any], odd: st.SearchStrategy[Any], times: int) -> st.SearchStrategy[Any]:
    """The usual one so many times as often. `one_of` would count the same strategy once."""
    return st.sampled_from([True] * times + [False]).flatmap(lambda is_usual: usual if is_usual else odd)


LIVELY_NAMES = st.sampled_from(["stale.md", "plan.md", "hard", "theirs/a.md", "out/new", "new.md", "part"])
NAMES = mostly(LIVELY_NAMES, ODD_NAMES, 2)
HASHES = st.sampled_from(
    [sha256(b"v1"), sha256(b"v2"), sha256(b"v2"), "ABSENT", "DELETED", "", "0" * 64, "F" * 64]
)
NUMBERS = st.sampled_from([0, 1, -1, 0.5, 60, 61, 1e308, -1e308, 2**70, float("inf"), float("nan")])
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | st.text(max_size=8) | NAMES | HASHES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
TEXTS = st.sampled_from(
    ["", "v1", "v2", "mine", "v", "\r\n", "\ud800", "\ufeffx", "*", "**", "!(a)", "[", "{a,b}"]
)


def value_of(name: str, rule: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """What a parameter may be given: mostly of the right type."""
    if name in ("path", "source", "destination"):
        right: st.SearchStrategy[Any] = NAMES
    elif name in ("expected_hash", "observation_id", "lock_id"):
        right = HASHES
    elif rule["type"] == "array":
        right = st.lists(value_of("path" if name == "paths" else "", rule["items"]), max_size=3)
    elif rule["type"] == "object":
        right = arguments_of(rule)
    elif rule["type"] == "boolean":
        right = st.booleans()
    elif rule["type"] in ("number", "integer"):
        right = NUMBERS | st.integers(-2, 5)
    else:
        right = TEXTS | NAMES
    return mostly(right, ANY_JSON, 19)


def arguments_of(rule: Mapping[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """
    Arguments for a schema: what is required and one or two more, or anything at all.

    Mostly few and right: what is refused for its shape never gets to where something could be lost.
    """
    known = {name: value_of(name, inner) for name, inner in rule["properties"].items()}
    required = {name: known[name] for name in rule.get("required", ())}
    more = {name: value for name, value in known.items() if name not in required}
    more |= {"expected_sha256": HASHES, "zzz": ANY_JSON}
    least = st.fixed_dictionaries(required)
    one_more = st.sampled_from(sorted(more)).flatmap(
        lambda name: st.fixed_dictionaries({**required, name: more[name]})
    )
    anything = st.dictionaries(st.sampled_from(sorted([*known, "zzz"])), ANY_JSON, max_size=3)
    odd = st.one_of(anything, st.fixed_dictionaries(required, optional=more))
    return mostly(st.one_of(least, one_more), odd, 5)


CHANGING = sorted(name for name, tool in TOOLS.items() if not tool.annotations["readOnlyHint"])
CALLS = st.lists(
    mostly(st.sampled_from(CHANGING), st.sampled_from(sorted(TOOLS)), 2).flatmap(
        lambda tool: st.tuples(st.just(tool), arguments_of(TOOLS[tool].parameters))
    ),
    min_size=4,
    max_size=12,
)


HASH = st.sampled_from([{}, {"expected_hash": sha256(b"v1")}, {"expected_hash": sha256(b"v2")}])
TARGETS = st.sampled_from(["stale.md", "hard", "plan.md", "theirs/a.md", "part/a.md", "new.md", "out/secret"])


def with_hash(
    tool: str, **arguments: st.SearchStrategy[Any]
) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    """A call of the right shape, with or without a hash."""
    return st.builds(lambda given, more: (tool, {**given, **more}), st.fixed_dictionaries(arguments), HASH)


EDITS = st.just([{"oldText": "v", "newText": "w"}])
FILES = st.lists(
    st.builds(lambda path, more: {"path": path, "content": "mine", **more}, TARGETS, HASH),
    min_size=1,
    max_size=2,
)
PLAUSIBLE = st.lists(
    st.one_of(
        with_hash("write_file", path=TARGETS, content=st.just("mine")),
        with_hash("edit_file", path=TARGETS, edits=EDITS),
        with_hash("delete_file", path=TARGETS),
        with_hash(
            "move_file", source=TARGETS, destination=st.sampled_from(["new.md", "out/x", "theirs/x", "part"])
        ),
        st.tuples(st.just("write_files"), st.fixed_dictionaries({"files": FILES})),
        st.tuples(
            st.just("lock_acquire"), st.fixed_dictionaries({"path": st.sampled_from(["part", "theirs"])})
        ),
    ),
    min_size=3,
    max_size=8,
)
"""Calls as a model makes them, so that many get as far as the disk."""


class Tree:
    """Two roots with everything that may lead out of them, what is outside, and a lock of somebody else's."""

    def __init__(self, top: Path) -> None:
        self.root, self.second, self.outside = top / "root", top / "second", top / "outside"
        for folder in (self.root / "part", self.root / "theirs", self.second, self.outside):
            folder.mkdir(parents=True)
        (self.outside / "secret").write_bytes(b"secret")
        (self.outside / "shared").write_bytes(b"v1")
        for name in ("plan.md", "stale.md", "part/a.md", "theirs/a.md"):
            (self.root / name).write_bytes(b"v1")
        (self.second / "plan.md").write_bytes(b"v1")
        (self.root / "out").symlink_to(self.outside)
        (self.root / "file-out").symlink_to(self.outside / "secret")
        (self.root / "loop").symlink_to("loop")
        (self.root / "nowhere").symlink_to(self.outside / "missing")
        (self.root / "hard").hardlink_to(self.outside / "shared")
        os.mkfifo(self.root / "fifo")
        self.lock = DeliverableLock(self.root / "theirs", holder="somebody", heartbeat=False)
        self.lock.acquire()

    def outer(self) -> dict[str, Any]:
        """What must never change: what is outside, and what somebody else has locked."""
        return {**_contents(self.outside, with_mode=True), **_contents(self.root / "theirs", with_mode=True)}

    def inner(self) -> dict[str, Any]:
        """What a refused call leaves as it is. Our own records tell of the refusal."""
        return {**_contents(self.root, with_mode=False), **_contents(self.second, with_mode=False)}

    def close(self) -> None:
        """Release the lock, and remove everything."""
        self.lock.release()
        shutil.rmtree(self.root.parent)


def _contents(folder: Path, *, with_mode: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for here, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != ".noclobber"]
        for name in (*folders, *files):
            path = Path(here, name)
            status = path.lstat()
            if name.startswith(".lock"):
                continue
            what = path.read_bytes() if path.is_file() and not path.is_symlink() else status.st_mode
            found[str(path)] = (what, status.st_mode if with_mode else 0)
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty home, for `~`."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        yield home


def tamed(value: Any) -> Any:
    """The same arguments, without a long wait for a lock; `second:` is the other root."""
    if isinstance(value, dict):
        return {
            key: 0
            if key == "timeout_s" and isinstance(item, (int, float)) and LONGEST_WAIT_S < item <= 60
            else tamed(item)
            for key, item in value.items()
        }
    return [tamed(item) for item in value] if isinstance(value, list) else value


SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck))
MANY_SESSIONS = st.sampled_from([True, True, True, False])


@settings(SETTINGS, max_examples=100)
@given(calls=CALLS, is_session=MANY_SESSIONS, strict=st.booleans())
def test_no_arguments_lead_out_lose_a_save_or_leave_the_client_without_an_answer(
    calls: list[tuple[str, dict[str, Any]]],
    is_session: bool,
    strict: bool,
    home: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """N-mcp, N-input, finding D4: never a traceback, a write outside, or one let through by an error."""
    check(calls, is_session, strict, tmp_path_factory.mktemp("any"))
    assert list(home.iterdir()) == []


@settings(SETTINGS, max_examples=150)
@given(calls=PLAUSIBLE, is_session=MANY_SESSIONS)
def test_no_calls_of_the_right_shape_lead_out_or_lose_a_save(
    calls: list[tuple[str, dict[str, Any]]], is_session: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Findings S10, S20, N-mcp: the same, for calls of which most are refused for what they would do."""
    check(calls, is_session, False, tmp_path_factory.mktemp("any"))


def check(calls: list[tuple[str, dict[str, Any]]], is_session: bool, strict: bool, folder: Path) -> None:
    """Make the calls, and see after each what must be true whatever they are."""
    tree = Tree(folder)
    workspaces = Workspaces()
    roots = Roots([str(tree.root), str(tree.second)])
    connection = ClientConnection(
        workspaces, roots, is_session=is_session, is_process=is_session, strict=strict
    )
    try:
        dispatch.call(connection, "read_text_file", {"path": "stale.md"}, lambda *_: None)
        (tree.root / "stale.md").write_bytes(b"v2")  # Somebody else's save, which this client has not seen.
        outer, is_unseen = tree.outer(), is_session
        for tool, drawn in calls:
            arguments = tamed(drawn)
            if isinstance(arguments.get("path"), str):
                arguments["path"] = arguments["path"].replace("second:", f"{tree.second}/")
            inner = tree.inner()

            answer = dispatch.call(connection, tool, arguments, lambda *_: None)

            check_answer(tool, answer.content, answer.structured, answer.is_error)
            shown = str(answer.content)
            assert "Traceback" not in shown
            assert "noclobber failed inside" not in shown
            assert tree.outer() == outer
            if answer.is_error or TOOLS[tool].annotations["readOnlyHint"] or tool in LOCKING:
                assert tree.inner() == inner
            is_unseen = is_unseen and not (tool in READING and "stale.md" in str(arguments))
            if is_unseen:
                assert (tree.root / "stale.md").read_bytes() == b"v2"
    finally:
        connection.close()
        workspaces.close()
        tree.close()
