"""The ledger on its own: what a line is, what a crash leaves, what a person may find in its place."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, SupportsIndex

import jsonschema
import pytest

from noclobber.core.clock import SystemClock
from noclobber.errors import BadEventError, BadRequestError, BrokenChainError, LedgerError
from noclobber.ledger import GENESIS, MAX_LINE_BYTES, AgentTraceLedger, spell_hash

SCHEMA = jsonschema.Draft202012Validator(
    json.loads(files("noclobber.core").joinpath("schemas/ledger-event.schema.json").read_text())
)
CONFLICT = {
    "action_type": "MUTATION_CONFLICT",
    "payload": {
        "tool_name": "write_to_file",
        "target_file": "/w/src/app.ts",
        "baseline_hash": "sha256:" + "a" * 64,
        "current_hash": "sha256:" + "b" * 64,
    },
    "result": {"status": "DENIED", "error_type": "STALE_FILE"},
    "identity": {"agent_id": "builder-1", "turn_id": "t-1"},
}


class FixedClock(SystemClock):
    """Noon, and waiting takes no time."""

    def __init__(self) -> None:
        self.monotonic = 0.0

    def now_s(self) -> float:
        return 1_700_000_000.25

    def monotonic_s(self) -> float:
        return self.monotonic

    def sleep(self, seconds: float | SupportsIndex) -> None:
        self.monotonic += float(seconds)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[AgentTraceLedger]:
    with AgentTraceLedger(tmp_path / "trace.jsonl") as ledger:
        yield ledger


def event(number: object) -> dict[str, Any]:
    return {"action_type": "MUTATION", "payload": {"number": number}, "result": {}}


def fill(ledger: AgentTraceLedger, count: int) -> list[Any]:
    return [ledger.append(event(number)) for number in range(count)]


def content(ledger: AgentTraceLedger) -> bytes:
    with open(ledger.path, "rb") as file:
        return file.read()


def overwrite(ledger: AgentTraceLedger, data: bytes) -> None:
    with open(ledger.path, "wb") as file:
        file.write(data)


def broken_line(ledger: AgentTraceLedger, **options: Any) -> tuple[Any, Any]:
    with pytest.raises(BrokenChainError) as broken:
        ledger.verify(**options)
    assert broken.value.path == ledger.path
    return broken.value.details["line"], broken.value.details["reason"]


# What a line is


def test_an_event_reads_back_as_recorded_with_number_time_and_links_around_it(tmp_path: Path) -> None:
    """R-ledger, 009-FR-009, 011-FR-005: path and both hashes are on record, word for word."""
    ledger = AgentTraceLedger(tmp_path / "trace.jsonl", clock=FixedClock())

    first, second = ledger.append(CONFLICT), ledger.append(CONFLICT)

    one, two = ledger.events()
    assert {name: one[name] for name in CONFLICT} == CONFLICT
    assert (one["seq"], one["time"], one["prev_hash"]) == (1, "2023-11-14T22:13:20.250000Z", GENESIS)
    assert (two["seq"], two["prev_hash"], two["hash"]) == (2, first.hash, second.hash)
    assert ledger.head == second.hash
    assert second == (2, two["time"], two["hash"], one["hash"], None)
    for line in ledger.events():
        SCHEMA.validate(line)


def test_the_hash_is_of_the_bytes_before_it(ledger: AgentTraceLedger) -> None:
    """R-ledger: anyone can check a line with a shell; the spelling is sha256:<hex> (ruling 4)."""
    entry = ledger.append(CONFLICT)

    prefix = content(ledger).partition(b',"hash":')[0]

    assert entry.hash == "sha256:" + sha256(prefix).hexdigest()
    assert spell_hash("c" * 64) == "sha256:" + "c" * 64
    assert spell_hash("DELETED") == "DELETED"


@pytest.mark.parametrize(
    ("change", "value"),
    [("payload", {"tool_name": "t"}), ("result", {"status": "OK", "error_type": "STALE_FILE"}), ("seq", 0)],
)
def test_the_schema_refuses_a_conflict_that_is_not_the_research_pages(
    ledger: AgentTraceLedger, change: str, value: dict[str, Any] | int
) -> None:
    """R-ledger: the schema that is shipped can fail."""
    ledger.append(CONFLICT)
    (line,) = ledger.events()

    assert not SCHEMA.is_valid({**line, change: value})


def test_a_clock_that_runs_backwards_does_not_disturb_the_order(tmp_path: Path) -> None:
    """R-ledger: order is seq's, time is what the clock said."""

    class Backwards(SystemClock):
        times = iter([2_000_000_000.5, 1_000_000_000.75, 1_000_000_000.999999])

        def now_s(self) -> float:
            return next(self.times)

    ledger = AgentTraceLedger(tmp_path / "trace.jsonl", clock=Backwards())
    fill(ledger, 3)

    assert [line["time"][-10:] for line in ledger.events()] == ["20.500000Z", "40.750000Z", "40.999999Z"]
    assert ledger.verify().event_count == 3


# Events that cannot be recorded


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"action_type": ""},
        {"action_type": 7},
        ["action_type"],
        {"action_type": "X", "seq": 4},
        {"action_type": "X", "hash": "h"},
        {"action_type": "X", "payload": {"path": "lone \udcff surrogate"}},
        {"action_type": "X", "\udcff": 1},
        {"action_type": "X", "payload": {1: "one"}},
        {"action_type": "X", "payload": {"a": [{None: 1}]}},
        {"action_type": "X", "payload": b"bytes"},
        {"action_type": "X", "payload": {"a": {1, 2}}},
        {"action_type": "X", "payload": float("nan")},
        {"action_type": "X", "payload": 10**5000},
        {"action_type": "X", "payload": "x" * MAX_LINE_BYTES},
    ],
    ids=[
        "no kind",
        "empty kind",
        "number as kind",
        "list",
        "seq",
        "hash",
        "surrogate",
        "surrogate as key",
        "number as key",
        "null as key",
        "bytes",
        "set",
        "nan",
        "huge number",
        "too large",
    ],
)
def test_an_event_that_json_cannot_hold_is_refused_before_anything_is_written(
    ledger: AgentTraceLedger, bad: Any
) -> None:
    """R-ledger: a clear error, and no file."""
    with pytest.raises(BadEventError) as refused:
        ledger.append(bad)

    assert refused.value.code == "LEDGER_BAD_EVENT"
    assert ledger.path in str(refused.value)
    assert not os.path.exists(ledger.path)


def test_an_event_that_contains_itself_or_is_nested_without_end_is_refused(ledger: AgentTraceLedger) -> None:
    """R-ledger: whatever is written can be read back by any JSON parser."""
    circle: dict[str, Any] = {}
    circle["me"] = circle
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]

    for payload in (circle, deep):
        with pytest.raises(BadEventError, match="nested"):
            ledger.append({"action_type": "X", "payload": payload})


def test_the_largest_event_that_is_taken_can_be_appended_to_and_verified(ledger: AgentTraceLedger) -> None:
    """R-ledger: the bound on a line and the reader's bound are the same."""
    for size in (100_000, MAX_LINE_BYTES - 1000, 5):
        ledger.append({"action_type": "X", "payload": "ü" * (size // 2)})
        ledger.close()

    assert ledger.verify().event_count == 3
    assert ledger.append(event(1)).seq == 4


# Broken chains


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (b"", "empty"),
        (b"hello", "not JSON"),
        (b"\x00\x00\x00", "NUL"),
        (b'{"seq":\xff}', "UTF-8"),
        (b"[" * 100_000, "nested"),
        (b"[1]", "not an object"),
        (b'{"seq":3}', "not in the form"),
        (b'{"seq":3} {}', "follows"),
        (b"x" * (MAX_LINE_BYTES + 10), "longer"),
        (b"x" * (3 * MAX_LINE_BYTES), "longer"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_garbage_line_is_named_with_its_number_and_the_reason(
    ledger: AgentTraceLedger, garbage: bytes, reason: str
) -> None:
    """R-ledger: `verify` names the first broken line; appending goes on behind it."""
    fill(ledger, 4)
    lines = content(ledger).split(b"\n")
    lines.insert(2, garbage)
    overwrite(ledger, b"\n".join(lines))

    line, why = broken_line(ledger)
    assert (line, reason in why) == (3, True), why
    if reason != "not in the form":  # That one is JSON, which is all that reading asks for.
        with pytest.raises(BrokenChainError):
            list(ledger.events())
    assert ledger.append(event(9)).seq == 5


def test_garbage_at_the_end_stays_as_evidence_and_does_not_stop_the_record(ledger: AgentTraceLedger) -> None:
    """R-ledger: a complete line is never removed; the next event follows the last entry before it."""
    third = fill(ledger, 3)[2]
    with open(ledger.path, "ab") as file:
        file.write(b"somebody was here\n")

    entry = ledger.append(event(4))

    assert (entry.seq, entry.prev_hash, entry.set_aside) == (4, third.hash, None)
    assert b"somebody was here\n" in content(ledger)
    assert broken_line(ledger)[0] == 4


def test_a_second_member_of_the_same_name_does_not_slip_through(ledger: AgentTraceLedger) -> None:
    """R-ledger: JSON readers take the last of two; what they would see is what is verified."""
    from noclobber.ledger.line import START, seal

    overwrite(ledger, seal(b'"action_type":"X","seq":99', START, "2026-01-01T00:00:00.000000Z")[0])

    assert broken_line(ledger) == (1, "it has members that this ledger does not write")


def test_a_cut_tail_is_seen_with_a_saved_head_and_only_with_one(ledger: AgentTraceLedger) -> None:
    """R-ledger: a chain proves order, not completeness."""
    saved = fill(ledger, 5)[-1].hash
    overwrite(ledger, b"".join(content(ledger).splitlines(keepends=True)[:3]))

    assert ledger.verify().event_count == 3
    line, reason = broken_line(ledger, head=saved)
    assert (line, reason) == (4, "saved head not found")


def test_a_saved_head_is_found_wherever_it_stands(ledger: AgentTraceLedger) -> None:
    """R-ledger: the chain may have grown since the head was saved; both spellings are taken."""
    entries = fill(ledger, 5)

    assert ledger.verify(head=entries[2].hash).saved_head_line == 3
    assert ledger.verify(head=entries[4].hash.removeprefix("sha256:").upper()).saved_head_line == 5
    assert ledger.verify(head=GENESIS).saved_head_line == 0
    with pytest.raises(BadRequestError):
        ledger.verify(head="sha256:123")


def test_a_new_ledger_in_the_old_ones_place_does_not_have_the_saved_head(ledger: AgentTraceLedger) -> None:
    """R-ledger: who can write the file can write a new chain; the head elsewhere tells."""
    saved = fill(ledger, 2)[-1].hash
    os.unlink(ledger.path)
    AgentTraceLedger(ledger.path).append(event(7))

    assert ledger.verify().event_count == 1
    assert broken_line(ledger, head=saved)[1] == "saved head not found"
    os.unlink(ledger.path)
    assert broken_line(ledger, head=saved)[1] == "saved head not found"


# Torn tails


@pytest.mark.parametrize(
    "torn", [b"{", b'{"seq":4,"time":"20', b"\0" * 5000, b'{"se\0\0\0\0"}\n', b"\xff\xfe"]
)
def test_a_torn_last_line_is_set_aside_reported_and_in_nobodys_way(
    ledger: AgentTraceLedger, torn: bytes
) -> None:
    """R-ledger: the bytes are kept, the report is an event, the next append is on record."""
    fill(ledger, 3)
    with open(ledger.path, "ab") as file:
        file.write(torn)

    entry = ledger.append(event("after"))

    assert entry.set_aside is not None
    with open(entry.set_aside, "rb") as file:
        assert file.read() == torn
    notice, last = list(ledger.events())[3:]
    assert notice["action_type"] == "LEDGER_TORN_TAIL"
    assert notice["payload"] == {"torn_bytes": len(torn), "set_aside": os.path.basename(entry.set_aside)}
    SCHEMA.validate(notice)
    assert (last["seq"], last["hash"]) == (5, entry.hash)
    report = ledger.verify()
    assert (report.event_count, report.torn_bytes, report.set_aside) == (5, 0, (entry.set_aside,))


def test_verify_reports_a_torn_tail_and_changes_nothing(ledger: AgentTraceLedger) -> None:
    """R-ledger: a torn end is a crash, not a forgery: the chain up to there holds, and the report says so."""
    fill(ledger, 3)
    with open(ledger.path, "ab") as file:
        file.write(b'{"seq":4')
    before = content(ledger)

    report = ledger.verify()

    assert (report.event_count, report.torn_bytes) == (3, 8)
    assert [line["seq"] for line in ledger.events()] == [1, 2, 3]
    assert content(ledger) == before


def test_the_very_first_line_torn_is_set_aside_too(ledger: AgentTraceLedger) -> None:
    """R-ledger: a crash during the first append leaves a ledger that works."""
    overwrite(ledger, b'{"seq":1,"time":"2026')

    assert ledger.head == GENESIS
    assert ledger.append(event(1)).seq == 2
    assert ledger.verify().event_count == 2


def test_a_last_line_that_lacks_only_its_newline_is_whole(ledger: AgentTraceLedger) -> None:
    """R-ledger: an editor that strips the last newline costs no event."""
    entries = fill(ledger, 3)
    overwrite(ledger, content(ledger)[:-1])

    assert ledger.verify(head=entries[2].hash).event_count == 3
    assert (ledger.head, len(list(ledger.events()))) == (entries[2].hash, 3)
    entry = ledger.append(event(4))
    assert (entry.seq, entry.set_aside, ledger.verify().event_count) == (4, None, 4)


@pytest.mark.parametrize("notes", [b"my notes", b"my notes\n", b"a\n" * 5_000_000, b"x" * 5_000_000])
def test_a_file_that_is_no_ledger_is_refused_and_not_touched(ledger: AgentTraceLedger, notes: bytes) -> None:
    """R-ledger: a mistyped path must not cost somebody's file."""
    overwrite(ledger, notes)

    for refused in (lambda: ledger.append(event(1)), ledger.prepare):
        with pytest.raises(LedgerError, match="choose another path"):
            refused()

    assert content(ledger) == notes
    assert os.listdir(os.path.dirname(ledger.path)) == ["trace.jsonl"]


# Files that come and go


@pytest.mark.parametrize("how", ["unlink", "rename", "truncate", "cut"])
def test_a_ledger_that_vanishes_is_begun_anew_and_the_loss_is_on_record(
    ledger: AgentTraceLedger, how: str
) -> None:
    """R-ledger: rotation and tampering while an appender runs leave a LEDGER_CUT event."""
    seen = fill(ledger, 3)[-1]
    if how == "unlink":
        os.unlink(ledger.path)
    elif how == "rename":
        os.rename(ledger.path, ledger.path + ".1")
    else:
        os.truncate(ledger.path, 0 if how == "truncate" else content(ledger).index(b"\n") + 1)
    left = 1 if how == "cut" else 0

    entry = ledger.append(event(4))

    notice, last = list(ledger.events())[left:]
    assert (notice["action_type"], last["hash"]) == ("LEDGER_CUT", entry.hash)
    assert (notice["payload"]["seen_head"], notice["payload"]["found_count"]) == (seen.hash, left)
    SCHEMA.validate(notice)
    assert ledger.verify().event_count == left + 2
    if how == "rename":
        assert AgentTraceLedger(ledger.path + ".1").verify().event_count == 3


def test_nothing_is_created_before_the_first_append(ledger: AgentTraceLedger) -> None:
    """R-ledger: looking at a ledger that is not there makes none; it is an empty chain."""
    assert (ledger.verify().event_count, ledger.head, list(ledger.events())) == (0, GENESIS, [])
    assert not os.path.exists(ledger.path)
    overwrite(ledger, b"")
    assert ledger.verify().event_count == 0
    assert ledger.append(event(1)).seq == 1


# Paths that cannot be a ledger


def _directory(path: str) -> None:
    os.mkdir(path)


def _socket(path: str) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(".", os.O_RDONLY)
        os.chdir(os.path.dirname(path))  # Socket paths are short.
        server.bind(os.path.basename(path))
        os.fchdir(here)
        os.close(here)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (_directory, "folder"),
        (os.mkfifo, "regular file"),
        (_socket, "regular file"),
        (lambda path: os.symlink("/dev/null", path), "symbolic link"),
        (lambda path: os.symlink("nowhere", path), "symbolic link"),
    ],
    ids=["directory", "fifo", "socket", "link", "dangling"],
)
def test_a_path_that_is_no_regular_file_is_an_error_that_says_what_to_do(
    ledger: AgentTraceLedger, make: Callable[..., Any], word: str
) -> None:
    """R-ledger, ruling 13: nothing blocks, nothing is followed, and the error names path and remedy."""
    make(ledger.path)

    for attempt in (lambda: ledger.append(event(1)), ledger.prepare):
        with pytest.raises(LedgerError, match=word) as refused:
            attempt()
        assert refused.value.path == ledger.path
    with pytest.raises(LedgerError):
        ledger.verify()


def test_bad_paths_are_ledger_errors(tmp_path: Path) -> None:
    """R-ledger: NUL, too long, no such folder; and no folder is ever created."""
    for path, word in [
        (f"{tmp_path}/a\0b", "null"),
        (f"{tmp_path}/{'x' * 300}", "shorter"),
        (f"{tmp_path}/no/such/folder", "create it"),
    ]:
        for attempt in (lambda path=path: AgentTraceLedger(path).append(event(1)),
                        lambda path=path: AgentTraceLedger(path).verify()):  # fmt: skip
            with pytest.raises(LedgerError, match=word):
                attempt()
    assert os.listdir(tmp_path) == []


def test_an_unwritable_ledger_is_an_error_and_can_still_be_verified(ledger: AgentTraceLedger) -> None:
    """Ruling 13, X-003: as an unprivileged user; a person is told what to change."""
    fill(ledger, 2)
    os.chmod(ledger.path, 0o444)
    for folder in (os.path.dirname(ledger.path), *[os.path.dirname(os.path.dirname(ledger.path))]):
        os.chmod(folder, 0o755)
    program = (
        "import os, sys\n"
        "import noclobber.ledger.verify\n"  # While its files can still be read.
        "from noclobber.ledger import AgentTraceLedger\n"
        "from noclobber.errors import LedgerError\n"
        "ledger = AgentTraceLedger(sys.argv[1])\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"
        "try: ledger.append({'action_type': 'X'})\n"
        "except LedgerError as error: print(error.details['errno'], 'owner or the mode' in str(error))\n"
        "try: print(ledger.verify().event_count)\n"
        "except LedgerError as error: print('unreadable', error)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, ledger.path], capture_output=True, text=True, timeout=60
    )

    assert done.stderr == ""
    assert done.stdout.splitlines()[0] == f"{errno.EACCES} True"


# Disks that fill up


def test_a_write_that_fails_half_way_leaves_no_trace(ledger: AgentTraceLedger) -> None:
    """R-ledger: a file-size limit in the middle of a line; the partial bytes are taken back."""
    fill(ledger, 3)
    before = content(ledger)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, limits[1]))
    try:
        with pytest.raises(LedgerError, match="file-size limit") as refused:
            ledger.append(event(4))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, old)

    assert refused.value.details["errno"] == errno.EFBIG
    assert content(ledger) == before
    assert ledger.append(event(5)).seq == 4
    assert ledger.verify().event_count == 4


def test_a_full_disk_refuses_the_event_and_keeps_the_chain(tmp_path: Path) -> None:
    """R-ledger: on a real small filesystem, again and again, then with room."""
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("mounting a small tmpfs takes root on Linux")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.decode().strip()}")
    try:
        with AgentTraceLedger(tmp_path / "trace.jsonl") as ledger:
            recorded = 0

            def append_until_full() -> None:
                nonlocal recorded
                while True:
                    ledger.append({"action_type": "X", "payload": "x" * 1000})
                    recorded += 1

            with pytest.raises(LedgerError, match="disk is full"):
                append_until_full()
            for _ in range(3):
                with pytest.raises(LedgerError, match="disk is full"):
                    ledger.append({"action_type": "X", "payload": "x" * 5000})
            report = ledger.verify()
            assert (report.event_count, report.torn_bytes) == (recorded, 0)
            assert recorded > 20
            subprocess.run(["mount", "-o", "remount,size=128k", tmp_path], check=True)
            assert ledger.append(event(1)).seq == recorded + 1
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_a_durable_append_flushes_the_line_and_once_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-ledger: `durable=True` returns after the disk has it, and says if only that failed."""
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(os.fstat(descriptor).st_mode))
    ledger = AgentTraceLedger(tmp_path / "trace.jsonl", durable=True)
    fill(ledger, 2)
    assert len(flushed) == 3

    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(LedgerError, match="may not survive") as failed:
        ledger.append(event(3))
    assert failed.value.details["recorded"] == "yes"
    assert ledger.verify().event_count == 3


# Memory and progress


def test_verify_streams_and_shows_progress(ledger: AgentTraceLedger) -> None:
    """R-ledger: memory does not grow with the ledger; progress ends at the whole file."""
    import tracemalloc

    from noclobber.ledger.line import START, encode, seal

    body, link = encode(ledger.path, CONFLICT), START
    with open(ledger.path, "wb") as file:
        for _ in range(20_000):
            line, link = seal(body, link, "2026-01-01T00:00:00.000000Z")
            file.write(line)
    shown = []
    tracemalloc.start()
    try:
        report = ledger.verify(progress=lambda *figures: shown.append(figures))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert report.event_count == 20_000
    assert len(shown) > 10
    assert shown == sorted(shown)
    assert shown[-1] == (report.size_bytes, report.size_bytes, 20_000)
    assert peak_bytes < report.size_bytes / 4


def test_a_line_without_end_is_named_without_being_held_in_memory(ledger: AgentTraceLedger) -> None:
    """R-ledger: 200 MB of nothing behind the last entry."""
    import tracemalloc

    fill(ledger, 2)
    os.truncate(ledger.path, 200_000_000)
    tracemalloc.start()
    try:
        assert broken_line(ledger)[0] == 3
        with pytest.raises(BrokenChainError):
            list(ledger.events())
        with pytest.raises(LedgerError, match="damaged"):
            ledger.append(event(3))
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("place", ["a hard link", "a symbolic link"])
def test_a_torn_end_is_not_written_through_a_link_that_was_placed_before(tmp_path: Path, place: str) -> None:
    """finding S20: the copy's name can be foreseen, so whatever has it is replaced and never written to."""
    path, victim = tmp_path / "ledger.jsonl", tmp_path / "victim"
    AgentTraceLedger(path).append({"action_type": "FIRST", "payload": {}, "result": {}, "identity": {}})
    torn = b'{"seq":2,"cut'
    with path.open("ab") as file:
        file.write(torn)
    victim.write_text("mine")
    foreseen = f"{path}.torn-2-{sha256(torn).hexdigest()[:16]}"
    if place == "a hard link":
        os.link(victim, foreseen)
    else:
        os.symlink(victim, foreseen)
    AgentTraceLedger(path).append({"action_type": "NEXT", "payload": {}, "result": {}, "identity": {}})
    assert victim.read_text() == "mine"
    assert Path(foreseen).read_bytes() == torn
    assert not Path(foreseen).is_symlink()


def test_events_that_are_recorded_together_are_one_chain(tmp_path: Path) -> None:
    """N-shell: what a command changed is recorded with one write, one line a file."""
    ledger = AgentTraceLedger(tmp_path / "agent_trace.jsonl")
    first = ledger.append({"action_type": "A"})
    entries = ledger.append_all([{"action_type": name} for name in "BCD"])
    last = ledger.append({"action_type": "E"})

    assert [entry.seq for entry in (first, *entries, last)] == [1, 2, 3, 4, 5]
    assert [entry.prev_hash for entry in (*entries, last)] == [entry.hash for entry in (first, *entries)]
    assert ledger.verify().event_count == 5
    assert ledger.append_all([]) == []


def test_of_events_that_are_recorded_together_a_bad_one_keeps_all_off_the_record(tmp_path: Path) -> None:
    """N-shell: all of them, or none."""
    ledger = AgentTraceLedger(tmp_path / "agent_trace.jsonl")
    with pytest.raises(BadEventError):
        ledger.append_all([{"action_type": "A"}, {"action_type": "B", "seq": 1}])

    assert list(ledger.events()) == []
