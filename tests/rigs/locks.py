"""What the lock's tests share: a clock that is told what time it is, records, and real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from noclobber.core.clock import iso8601
from noclobber.disk.processes import ProcessIdentity, identify
from noclobber.lock.lock_file import LockFile
from noclobber.lock.record import LockRecord
from tests.rigs.ledgers import recorded

REPOSITORY = Path(__file__).resolve().parents[2]
T0_S = 1_800_000_000.0


class ToldClock:
    """Time stands still until somebody sleeps or says so."""

    def __init__(self, now_s: float = T0_S) -> None:
        self.time_s = now_s
        self.slept_s: list[float] = []

    def now_s(self) -> float:
        return self.time_s

    def monotonic_s(self) -> float:
        return self.time_s

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.time_s += seconds


def dead_process() -> ProcessIdentity:
    """A process that really ran, and really was killed."""
    process = subprocess.Popen(["sleep", "1000"])
    try:
        return identify(process.pid)
    finally:
        process.kill()
        process.wait()


def put_record(folder: Path, who: ProcessIdentity | None = None, **changes: Any) -> LockRecord:
    """Publish a lock as somebody else would have."""
    who = who or identify()
    store = LockFile(str(folder))
    try:
        record = LockRecord(
            "D-1", "somebody else", iso8601(T0_S), 1800, who.pid, os.urandom(16).hex(),
            who.host, who.boot_id, who.pid_namespace, who.started, store.identity.device, store.identity.inode,
        )._replace(**changes)  # fmt: skip
        assert store.create(record)
    finally:
        store.close()
    return record


def events(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """What the folder's lock ledger says."""
    path = folder / ".lock-ledger.jsonl"
    return [event for event in recorded(path) if kind is None or event["action_type"] == kind]


def python(code: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Start a process that runs some lines with this package."""
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "src")} | options.pop("env", {})
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment, **options,
    )  # fmt: skip


def finish(process: subprocess.Popen[str], timeout_s: float = 30) -> tuple[int, str, str]:
    """Wait for a process; exit code, what it said, what it complained about."""
    out, err = process.communicate(timeout=timeout_s)
    return process.returncode, out.strip(), err.strip()


def noclobber(*words: object, **options: Any) -> tuple[int, str, str]:
    """Run the command line."""
    code = "import sys; from noclobber.cli import main; sys.exit(main(sys.argv[1:]))"
    return finish(python(code, *words, **options))
