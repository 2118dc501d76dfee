"""Guarded writes without a workspace: recorded if, and only if, a ledger is given (finding D9)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noclobber import (
    AgentTraceLedger,
    LedgerError,
    OptimisticGuard,
    StaleFileError,
    StorageError,
    ToolCall,
    replace_if_unchanged,
)
from noclobber.ledger.root import workspace_id
from tests.conftest import sha256

Write = Callable[..., Any]
V1 = sha256(b"v1")


def _function(root: Path) -> Write:
    def write(expected: str | None, data: bytes, **more: Any) -> Any:
        return replace_if_unchanged(root / "a.md", expected, data, **more)

    return write


def _guard(root: Path) -> Write:
    def write(expected: str | None, data: bytes, **more: Any) -> Any:
        durable = more.pop("durable", False)
        return OptimisticGuard(root, durable=durable).write("a.md", data, expected=expected, **more)

    return write


@pytest.fixture(params=[_function, _guard], ids=["replace_if_unchanged", "OptimisticGuard.write"])
def write(root: Path, request: pytest.FixtureRequest) -> Write:
    (root / "a.md").write_bytes(b"v1")
    made: Write = request.param(root)
    return made


@pytest.fixture
def ledger(tmp_path: Path) -> AgentTraceLedger:
    return AgentTraceLedger(tmp_path / "trace.jsonl")


def target(write: Write, root: Path) -> str:
    """A guard knows its root; the function has none."""
    return "a.md" if "_guard" in write.__qualname__ else str(root / "a.md")


def test_a_write_with_a_ledger_leaves_one_event(root: Path, write: Write, ledger: AgentTraceLedger) -> None:
    """finding D9: hashes, level and who asked."""
    call = ToolCall("save", {}, agent_id="editor", call_id="c1")
    done = write(V1, b"v2", ledger=ledger, call=call)
    [event] = ledger.events()
    assert event["action_type"] == "MUTATION"
    assert event["payload"] == {
        "tool_name": "save",
        "target_file": target(write, root),
        "before_hash": f"sha256:{V1}",
        "after_hash": f"sha256:{sha256(b'v2')}",
        "level": done.level,
    }
    assert event["identity"] == {"agent_id": "editor", "call_id": "c1"}
    guarded = "_guard" in write.__qualname__
    assert event.get("workspace_id") == (workspace_id(str(root)) if guarded else None)


def test_a_refusal_with_a_ledger_leaves_one_event(root: Path, write: Write, ledger: AgentTraceLedger) -> None:
    """finding D9, 011-SC-004."""
    (root / "a.md").write_bytes(b"theirs")
    with pytest.raises(StaleFileError):
        write(V1, b"mine", ledger=ledger)
    [event] = ledger.events()
    assert (event["action_type"], event["payload"]["target_file"]) == (
        "MUTATION_CONFLICT",
        target(write, root),
    )
    assert (root / "a.md").read_bytes() == b"theirs"


def test_without_a_ledger_there_is_no_event(root: Path, write: Write) -> None:
    """finding D9: as the documentation says."""
    write(V1, b"v2")
    with pytest.raises(StaleFileError):
        write(V1, b"v3")
    assert not list(root.rglob("*.jsonl"))


def test_a_broken_ledger_lets_no_write_through(root: Path, write: Write, tmp_path: Path) -> None:
    """Ruling 13."""
    (tmp_path / "folder").mkdir()
    with pytest.raises(LedgerError):
        write(V1, b"v2", ledger=AgentTraceLedger(tmp_path / "folder"))
    assert (root / "a.md").read_bytes() == b"v1"


def test_a_write_that_was_not_flushed_is_on_record_as_landed(
    root: Path, write: Write, ledger: AgentTraceLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-durable."""
    real = os.fsync

    def fail_for_folders(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), os.stat(root)):
            raise OSError(5, "I/O error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fail_for_folders)
    with pytest.raises(StorageError):
        write(V1, b"v2", ledger=ledger, durable=True)
    [event] = ledger.events()
    assert (event["action_type"], event["payload"]["flushed"]) == ("MUTATION", "no")
    assert (root / "a.md").read_bytes() == b"v2"
