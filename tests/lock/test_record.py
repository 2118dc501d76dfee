"""The lock file itself: its name, its content, and everything that can stand in its place."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noclobber.core.clock import iso8601
from noclobber.disk.processes import GONE, RUNNING, UNKNOWN, identify
from noclobber.errors import LockContention
from noclobber.lock.liveness import MAX_REMAINING_S, judge
from noclobber.lock.lock import DeliverableLock
from noclobber.lock.names import LEDGER_NAME, LOCK_NAME, is_lock_file
from noclobber.lock.record import MAX_RECORD_BYTES, LockRecord, parse, read
from tests.rigs.locks import T0_S, ToldClock, dead_process, events, finish, put_record, python

FIVE = {
    "holder": "other tool",
    "acquired": "2027-01-15T08:00:00Z",
    "lease_duration_s": 60,
    "pid": 4242,
    "deliverable_id": "DEL-1",
}
SCHEMAS = Path(__file__).parents[2] / "src/noclobber/core/schemas"


def schema(name: str) -> object:
    return json.loads((SCHEMAS / f"{name}.schema.json").read_text())


def test_the_lock_is_a_file_called_dot_lock_inside_the_folder(tmp_path: Path) -> None:
    """REQ-LOCK-001, REQ-LOCK-001a, X-001: its presence is the lock, its absence is none."""
    lock = DeliverableLock(tmp_path, holder="a")
    assert not (tmp_path / ".lock").exists()
    lock.acquire()
    assert LOCK_NAME == ".lock"
    assert (tmp_path / ".lock").is_file()
    lock.release()
    assert not (tmp_path / ".lock").exists()


def test_every_file_of_every_operation_is_below_the_folder(tmp_path: Path) -> None:
    """REQ-LOCK-008, X-001: the audit record included."""
    folder = tmp_path / "deliverable"
    folder.mkdir()
    with DeliverableLock(folder, holder="a") as lock:
        lock.renew()
        with pytest.raises(Exception, match="locked by a"):
            DeliverableLock(folder, holder="b").acquire()
    (folder / ".lock").write_text("garbage")
    os.utime(folder / ".lock", (T0_S, 0))
    DeliverableLock(folder).recover()
    DeliverableLock(folder).retire()
    assert [path.name for path in tmp_path.iterdir()] == ["deliverable"]
    assert sorted(path.name for path in folder.iterdir()) == [LEDGER_NAME]


def test_the_record_has_the_mandatory_fields_and_fits_its_schema(tmp_path: Path) -> None:
    """REQ-LOCK-002: five mandatory members of the right type, schema_version "1", and ours beside them."""
    with DeliverableLock(tmp_path, deliverable_id="DEL-08-05", holder="builder-1", lease_duration_s=90):
        text = (tmp_path / ".lock").read_text()
    record = json.loads(text)
    jsonschema.validate(record, schema("lock-record"))
    assert record["holder"] == "builder-1"
    assert record["deliverable_id"] == "DEL-08-05"
    assert record["lease_duration_s"] == 90
    assert record["pid"] == os.getpid()
    assert record["schema_version"] == "1"
    assert {"lock_id", "host", "boot_id", "pid_namespace", "pid_started"} <= record.keys()


def test_a_lock_by_a_program_that_knows_only_the_five_members_is_respected(tmp_path: Path) -> None:
    """REQ-LOCK-002: it has no id, host or start time; its pid runs, and its lease counts."""
    (tmp_path / ".lock").write_text(json.dumps(FIVE | {"pid": os.getpid()}))
    found = read(str(tmp_path / ".lock"))
    assert found is not None
    assert found.record is not None
    assert judge(found, found.record.expires_s - 0.001).state == "live"
    assert judge(found, found.record.expires_s).reason == "lease_expired"


def test_a_lease_only_lock_names_a_pid_that_always_runs(tmp_path: Path) -> None:
    """REQ-LOCK-002: a reader that knows only the five asks whether the pid runs, and must not be misled."""
    lock = DeliverableLock(tmp_path, lease_only=True).acquire()
    record = json.loads((tmp_path / ".lock").read_text())
    lock.release()
    assert record["pid"] == 1
    assert record["pid_started"] is None


BROKEN = {
    "empty": b"",
    "cut": json.dumps(FIVE).encode()[:40],
    "not JSON": b"\x80\xff\x00 locked",
    "not an object": b"[1, 2]",
    "a bool as pid": json.dumps(FIVE | {"pid": True}).encode(),
    "a string as lease": json.dumps(FIVE | {"lease_duration_s": "60"}).encode(),
    "a lease of nothing": json.dumps(FIVE | {"lease_duration_s": 0}).encode(),
    "no such time": json.dumps(FIVE | {"acquired": "yesterday"}).encode(),
    "pid 0": json.dumps(FIVE | {"pid": 0}).encode(),
    "an object as holder": json.dumps(FIVE | {"holder": {}}).encode(),
    "a number as host": json.dumps(FIVE | {"host": 3}).encode(),
    "nested": b"[" * 60_000,
    "nested in a member": json.dumps(FIVE).encode()[:-1] + b', "x": ' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    "a lease of 10^400 s": json.dumps(FIVE | {"lease_duration_s": 10**400}).encode(),
    "a lease of 10^12 s": json.dumps(FIVE | {"lease_duration_s": 10**12, "pid": 1}).encode(),
    "a pid that no system has": json.dumps(FIVE | {"pid": 2**31}).encode(),
    "a start time of 10^400": json.dumps(FIVE | {"pid_started": 10**400}).encode(),
    "a surrogate as holder": json.dumps(FIVE | {"holder": "evil\udcff"}).encode(),
    "a surrogate as host": json.dumps(FIVE | {"host": "\udcff"}).encode(),
    "a surrogate in its origin": json.dumps(FIVE | {"recovered_from": {"detail": "\udcff"}}).encode(),
    "a long holder": json.dumps(FIVE | {"holder": "x" * 5000}).encode(),
    "a renewal of nothing": json.dumps(FIVE | {"renewal_s": 0}).encode(),
    "huge": b" " * (MAX_RECORD_BYTES + 1) + json.dumps(FIVE).encode(),
    **{f"no {name}": json.dumps({k: v for k, v in FIVE.items() if k != name}).encode() for name in FIVE},
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_not_a_record_is_corrupt_and_says_why(kind: str) -> None:
    """REQ-LOCK-006: a corrupt file is recoverable, and never takes a reader down."""
    found = parse(BROKEN[kind])._replace(unparsed_age_s=None)
    assert found.record is None
    assert found.corruption
    assert judge(found, T0_S).reason == "corrupt"


@pytest.mark.parametrize("kind", [kind for kind in BROKEN if kind != "empty"])
def test_every_broken_record_is_recovered_by_the_next_to_acquire(tmp_path: Path, kind: str) -> None:
    """finding S15: no content of a lock file stops a command, or keeps a folder locked."""
    (tmp_path / ".lock").write_bytes(BROKEN[kind])
    os.utime(tmp_path / ".lock", (0, 0))
    assert DeliverableLock(tmp_path).status().state == "corrupt"
    with DeliverableLock(tmp_path, holder="next"):
        pass
    (event,) = events(tmp_path, "LOCK_RECOVERED")
    assert event["payload"]["recovery_reason"] == "corrupt"


def test_a_lock_that_a_peer_has_just_created_is_contention_and_later_an_orphan(tmp_path: Path) -> None:
    """finding D5, ruling 25: an `O_CREAT|O_EXCL` peer fills the file a moment after it created it."""
    lock = tmp_path / ".lock"
    for half in (b"", b'{"holder": "pe'):
        lock.write_bytes(half)
        with pytest.raises(LockContention):
            DeliverableLock(tmp_path, holder="hasty").acquire()
        with pytest.raises(LockContention):
            DeliverableLock(tmp_path).recover()
        assert lock.read_bytes() == half
    now_s = lock.stat().st_mtime
    for age_s in (4.0, 6.0, -3600.0):  # The last is dated in the future, and would be new for an hour.
        os.utime(lock, (now_s, now_s - age_s))
        expected = "live" if age_s == 4.0 else "corrupt"
        assert DeliverableLock(tmp_path).status().state == expected, age_s


def test_a_record_with_the_five_members_alone_is_judged_by_its_pid(tmp_path: Path) -> None:
    """finding D5, ruling 25, REQ-LOCK-006: it names no machine, so it is of this one; and a zombie is gone."""
    now = {"acquired": iso8601(time.time()), "lease_duration_s": 600}
    zombie = subprocess.Popen(["true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    try:
        for pid, state in ((os.getpid(), "live"), (dead_process().pid, "dead"), (zombie.pid, "dead")):
            (tmp_path / ".lock").write_text(json.dumps(FIVE | now | {"pid": pid}))
            assert DeliverableLock(tmp_path).status().state == state, (pid, state)
    finally:
        zombie.wait()
    elsewhere = FIVE | now | {"pid": zombie.pid, "host": "another"}
    (tmp_path / ".lock").write_text(json.dumps(elsewhere))
    assert DeliverableLock(tmp_path).status().state == "live", "another machine's pid cannot be judged here"


@given(st.binary(max_size=300))
def test_no_bytes_take_the_reader_down(content: bytes) -> None:
    """REQ-LOCK-006: whatever stands in a lock file, it is a record or it is corrupt."""
    found = parse(content)
    assert (found.record is None) == (found.corruption is not None)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.sampled_from([*FIVE, "lock_id", "host", "recovered_from"]), x), max_leaves=12))  # fmt: skip
def test_no_json_takes_the_reader_down(value: Any) -> None:
    """REQ-LOCK-006: types are checked before they are used."""
    found = parse(json.dumps(value).encode())
    assert judge(found, T0_S).state in ("corrupt", "expired", "live", "dead")


@pytest.mark.parametrize("kind", ["symlink", "dangling symlink", "FIFO", "directory", "socket"])
def test_things_that_are_not_files_neither_block_nor_are_followed(tmp_path: Path, kind: str) -> None:
    """REQ-LOCK-006: reading ends at once, and the link's target is not taken for a lock."""
    path = tmp_path / ".lock"
    target = tmp_path / "target"
    target.write_text(json.dumps(FIVE))
    if kind == "symlink":
        path.symlink_to(target)
    elif kind == "dangling symlink":
        path.symlink_to(tmp_path / "nowhere")
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        here = os.getcwd()
        os.chdir(tmp_path)  # A socket's path is short.
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(".lock")
        finally:
            os.chdir(here)
    answers = []
    reader = threading.Thread(target=lambda: answers.append(read(str(path))), daemon=True)
    reader.start()
    reader.join(10)
    assert answers, "the reader hangs"
    assert answers[0] is not None
    assert answers[0].record is None
    assert target.read_text() == json.dumps(FIVE)


@pytest.mark.parametrize("lock_id", ["../../etc/passwd", "a/b", "", ".", "x" * 300, "corrupt", "spa ce"])
def test_an_id_that_is_no_file_name_is_not_used_as_one(lock_id: str) -> None:
    """REQ-LOCK-008: what another program wrote into a lock file does not choose where we write."""
    found = parse(json.dumps(FIVE | {"lock_id": lock_id}).encode())
    assert found.record is not None
    assert found.key != lock_id
    assert found.key.isalnum()


def record_of(**changes: Any) -> LockRecord:
    who = identify()
    whole = LockRecord("D", "h", "2027-01-15T08:00:00Z", 60, who.pid, "0" * 32, who.host, who.boot_id,
                       who.pid_namespace, who.started)  # fmt: skip
    return whole._replace(**changes)


def verdict(record: LockRecord, now_s: float, fate: str = RUNNING) -> Any:
    found = parse(record.to_bytes())
    return judge(found, now_s, fate_of=lambda _: fate)


def test_a_lease_ends_at_the_very_moment_it_says() -> None:
    """REQ-LOCK-004: expired the moment now >= acquired + lease_duration_s, not a moment before."""
    record = record_of()
    assert verdict(record, record.expires_s - 0.000_001).state == "live"
    assert verdict(record, record.expires_s).state == "expired"


def test_a_dead_holder_counts_at_once_and_an_unknown_one_by_its_lease() -> None:
    """REQ-LOCK-006: gone is gone; elsewhere only the lease counts."""
    record = record_of()
    assert verdict(record, record.acquired_s, GONE).reason == "pid_dead"
    assert verdict(record, record.acquired_s, UNKNOWN).state == "live"


def test_a_lease_that_no_clock_can_have_made_does_not_lock_for_ever() -> None:
    """REQ-LOCK-004: the year 9999, or a lease of 10^12 s, by whomever."""
    far = record_of(acquired="9999-12-31T00:00:00Z")
    long = record_of(lease_duration_s=10**9)
    for record in (far, long):
        assert verdict(record, T0_S, UNKNOWN).reason == "corrupt"
        assert verdict(record, T0_S, RUNNING).reason == "corrupt"
    edge = record_of(lease_duration_s=MAX_REMAINING_S)
    assert verdict(edge, edge.acquired_s, UNKNOWN).state == "live"


@pytest.mark.parametrize(
    ("name", "yes"),
    [
        (".lock", True), ("a/b/.lock", True), ("/x/.LOCK", True), (".lock-ledger.jsonl", True),
        (".lock.take.0123", True), (".lock-ledger.jsonl.torn-1", True), ("x/.lock/", True),
        ("lock", False), ("poetry.lock", False), (".locks", False), (".lock/file", False), ("", False),
    ],
)  # fmt: skip
def test_lock_files_are_known_by_their_name(name: str, yes: bool) -> None:
    """REQ-LOCK-010, K-GHOST-1: guarded tools ask this before they serve or write a file."""
    assert is_lock_file(name) is yes


def test_a_published_record_is_read_back_as_it_was(tmp_path: Path) -> None:
    """REQ-LOCK-002: spelled and parsed are the same record."""
    record = put_record(tmp_path, holder='quote " and ünïcode', recovered_from={"recovery_reason": "corrupt"})
    found = read(str(tmp_path / ".lock"))
    assert found is not None
    assert found.record == record
    assert found.key == record.lock_id


def test_ids_are_never_given_twice_not_even_to_a_forked_child() -> None:
    """REQ-LOCK-002: unique per acquisition; a child does not go on with its parent's."""
    code = """
import os
from noclobber.lock.record import new_secret
ids = [new_secret() for _ in range(3)]
pid = os.fork()
if pid:
    os.waitpid(pid, 0)
print(*ids, new_secret(), flush=True)
os._exit(0)
"""
    returned, said, _ = finish(python(code))
    assert returned == 0
    assert len(said.split()) == 8
    assert len(set(said.split())) == 5


def test_the_contention_report_has_exactly_its_fields(tmp_path: Path) -> None:
    """REQ-LOCK-007: four fields and error_type, by schema."""
    clock = ToldClock()
    put_record(tmp_path, holder="builder-7", lease_duration_s=100)
    clock.time_s += 40.5
    with pytest.raises(LockContention, match="builder-7") as refused:
        DeliverableLock(tmp_path, deliverable_id="DEL-1", holder="b", clock=clock).acquire()
    report = refused.value.to_report()
    jsonschema.validate(report, schema("lock-contention"))
    assert report == {
        "error_type": "LOCK_CONTENTION",
        "deliverable_id": "DEL-1",
        "holder": "builder-7",
        "lease_remaining_s": 60,
        "contention_time": "2027-01-15T08:00:40.500000Z",
    }


@pytest.mark.parametrize("now_s", [-1.0, -0.5, 0.0, 0.999999, 1.5e9 + 0.25, 253_402_300_799.5])
def test_a_moment_is_spelled_the_same_whoever_was_asked_before(now_s: float) -> None:
    """N-clock: the second is remembered between two calls; also the one before the epoch."""
    expected = (EPOCH + timedelta(microseconds=round(now_s * 1_000_000))).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert iso8601(now_s) == expected
    iso8601(now_s + 1)
    assert iso8601(now_s) == expected


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
