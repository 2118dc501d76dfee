"""A disk that is full: nothing lands that is not on record, and the record of what landed has room."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from noclobber import Workspace
from noclobber.errors import NoclobberError
from noclobber.ledger import AgentTraceLedger
from noclobber.lock.lock import DeliverableLock
from tests.conftest import sha256
from tests.shell.test_process import is_available

AFTER = (b"landed\n" * 700).decode()
"""More than a block: a write that needs none would never meet a full disk."""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A project on a disk with room for 2 MiB."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root on Linux")
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m,nr_inodes=4096", "none", str(folder)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.decode().strip()}")
    try:
        (folder / "noclobber.toml").touch()
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, *, leaving_bytes: int) -> None:
    """Let another program fill the disk, but for so much."""
    filler = folder / "filler"
    filler.unlink(missing_ok=True)
    status = os.statvfs(folder)
    left = status.f_bavail * status.f_frsize - leaving_bytes
    if left > 0:
        with open(filler, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, left)


def not_on_record(folder: Path, names: set[str], ledger: Path) -> list[str]:
    """Files that hold what an agent wrote, and no event says so."""
    events = [json.loads(line) for line in ledger.read_bytes().splitlines()]
    told = {(event["payload"].get("target_file"), event["payload"].get("new_hash")) for event in events}
    landed = {name for name in names if (folder / name).read_text() == AFTER}
    recorded = {name for name, _ in told if name in landed}
    return sorted(landed - recorded)


@pytest.mark.parametrize("way", ["one", "several", "command"])
def test_on_a_full_disk_nothing_lands_without_a_record(small: Path, way: str) -> None:
    """Finding R14: 3 of 200 did. However much is left: it lands and is on record, or is refused."""
    if way == "command" and not is_available():
        pytest.skip("no namespaces here")
    ledger, landed, refused = small / ".noclobber" / "agent_trace.jsonl", 0, 0
    names: set[str] = set()
    with Workspace(small) as workspace:
        with workspace.turn() as turn:
            turn.write_file("first", "x")
        for leaving in range(0, 120, 3):
            mine = [f"{way}-{leaving}-{number}" for number in range(1 if way == "one" else 12)]
            for name in mine:
                (small / name).write_text("before\n")
            names.update(mine)
            fill(small, leaving_bytes=leaving * 4096)
            with workspace.turn() as turn:
                try:
                    if way == "one":
                        turn.write_file(mine[0], AFTER)
                    elif way == "several":
                        turn.write_files(dict.fromkeys(mine, AFTER))
                    else:
                        turn.run(
                            f"for f in {' '.join(mine)}; do printf '%s' \"$AFTER\" > $f; done",
                            environment={**os.environ, "AFTER": AFTER},
                        )
                    landed += 1
                except NoclobberError:
                    refused += 1
            (small / "filler").unlink(missing_ok=True)
            assert not_on_record(small, names, ledger) == []
            for name in mine:
                (small / name).unlink()
            names.difference_update(mine)
    assert landed
    assert refused
    AgentTraceLedger(ledger).verify()


def test_what_was_prepared_is_recorded_although_the_disk_is_full_by_then(small: Path) -> None:
    """Finding R14: others fill it between the two; and as many events as were asked for."""
    ledger = AgentTraceLedger(small / "trace.jsonl")
    ledger.prepare(40)
    size = os.stat(ledger.path).st_size
    fill(small, leaving_bytes=0)
    for number in range(40):
        ledger.append({"action_type": "TEST", "payload": {"text": "x" * 1500, "number": number}})
    assert (size, ledger.verify().event_count) == (0, 40)
    ledger.close()


def test_a_lock_that_was_taken_on_a_disk_that_is_full_since_is_released_on_record(small: Path) -> None:
    """Finding R14: its release is recorded where its acquisition was."""
    part = small / "part"
    part.mkdir()
    with DeliverableLock(part, holder="builder-1"):
        fill(small, leaving_bytes=0)
    kinds = [
        json.loads(line)["action_type"] for line in (part / ".lock-ledger.jsonl").read_bytes().splitlines()
    ]
    assert kinds == ["LOCK_ACQUIRED", "LOCK_RELEASED"]
    assert not (part / ".lock").exists()


def test_room_is_not_part_of_the_ledger(root: Path) -> None:
    """Finding R14: readers, copies and the hash of the file are as without it."""
    ledger = AgentTraceLedger(root / "trace.jsonl")
    ledger.prepare()
    ledger.append({"action_type": "TEST"})
    ledger.close()
    content = (root / "trace.jsonl").read_bytes()
    assert content.endswith(b"}\n")
    assert sha256(content.rstrip(b"\0")) == sha256(content)
