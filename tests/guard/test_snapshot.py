"""The snapshot of a turn: initial hashes, baselines, what was seen, and how it all ends."""

from __future__ import annotations

import gc
import os
import signal
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noclobber import Observation
from noclobber.core.clock import SystemClock
from noclobber.core.values import WHOLE, Coverage
from noclobber.disk import hashing
from noclobber.errors import ABSENT, BadRequestError, TurnClosedError
from noclobber.guard.snapshot import TurnContext
from tests.conftest import sha256

ROOT = "/work space"
A = f"{ROOT}/a.md"
B = f"{ROOT}/b.md"
H1, H2, H3 = sha256(b"v1"), sha256(b"v2"), sha256(b"v3")


class FixedClock(SystemClock):
    now = 1_000.0

    def now_s(self) -> float:
        self.now += 1
        return self.now


def context(**options: Any) -> TurnContext:
    return TurnContext(ROOT, turn_id="t1", clock=FixedClock(), **options)


def whole(turn: TurnContext, path: str, content: bytes, canonical: str | None = None) -> Observation:
    canonical = canonical or path
    return turn.observe(path, canonical, sha256(content), content, WHOLE)


def part(turn: TurnContext, path: str, content: bytes, first: int, last: int, total: int) -> Observation:
    return turn.observe(path, path, sha256(content), content, Coverage(((first, last),), total))


def test_the_first_read_sets_the_initial_hash_for_good() -> None:
    """010-FR-001, 010-FR-003, 010-FR-006, 010-SC-002: later reads and writes do not change it."""
    turn = context()
    whole(turn, A, b"v1")
    whole(turn, A, b"v2")
    turn.wrote(A, A, H3, b"v3")
    assert turn.get_initial_hash(A) == H1
    assert turn.expected_for(A, A) == H3


def test_an_own_write_is_a_baseline_and_no_initial_hash() -> None:
    """Ruling 10; 010-FR-001: the initial hash is of a read."""
    turn = context()
    turn.wrote(A, A, H1, b"v1")
    assert turn.get_initial_hash(A) is None
    assert turn.expected_for(A, A) == H1
    whole(turn, A, b"v2")
    assert turn.get_initial_hash(A) == H2


@pytest.mark.parametrize(
    "spelling", ["a.md", "./a.md", "sub/../a.md", A, Path("a.md"), Path(A), "//work space/a.md"]
)
def test_a_hash_is_found_by_every_spelling_of_its_path(spelling: Any) -> None:
    """010-FR-002, 010-FR-004: keyed by the absolute path; relative ones are relative to the workspace."""
    turn = context()
    whole(turn, A, b"v1")
    assert turn.get_initial_hash(spelling) == H1


def test_an_empty_file_has_the_hash_of_no_bytes() -> None:
    """010-edge-empty, ruling 8: empty files count."""
    turn = context()
    whole(turn, A, b"")
    assert turn.get_initial_hash(A) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_nothing_was_read_so_there_is_no_hash() -> None:
    """010-FR-004, ruling 7: None, and no check."""
    turn = context()
    assert turn.get_initial_hash(A) is None
    assert turn.expected_for(A, A) is None
    assert turn.coverage_for(A, A) is None


def test_absent_is_a_baseline_but_no_initial_hash() -> None:
    """Ruling 5, ruling 6."""
    turn = context()
    turn.observe_absent(A, A)
    assert turn.expected_for(A, A) == ABSENT
    assert turn.get_initial_hash(A) is None
    whole(turn, A, b"v1")
    assert (turn.expected_for(A, A), turn.get_initial_hash(A)) == (H1, H1)


def test_a_failed_read_is_remembered_and_proves_nothing() -> None:
    """Ruling 6, 010-edge-unreadable: the turn goes on; no baseline is made of a failure, and none is lost."""
    turn = context()
    turn.observe_error(A, A, "ACCESS_DENIED")
    assert turn.get_initial_hash(A) is None
    assert turn.expected_for(A, A) is None
    assert turn.error_for(A, A) == "ACCESS_DENIED"
    whole(turn, A, b"v1")
    assert turn.error_for(A, A) is None
    turn.observe_error(A, A, "NOT_A_FILE")
    assert turn.expected_for(A, A) == H1


def test_a_whole_re_read_moves_the_baseline() -> None:
    """009-FR-007, ruling 2."""
    turn = context()
    whole(turn, A, b"v1")
    whole(turn, A, b"v2")
    assert turn.expected_for(A, A) == H2


def test_a_part_of_another_version_does_not_move_the_baseline() -> None:
    """Ruling 2: the agent holds two halves of two versions."""
    turn = context()
    whole(turn, A, b"v1")
    part(turn, A, b"v2", 0, 5, 10)
    assert turn.expected_for(A, A) == H1


def test_parts_that_add_up_at_one_new_hash_move_the_baseline() -> None:
    """Ruling 2, ruling 11: contiguous parts at one hash are a whole read."""
    turn = context()
    whole(turn, A, b"v1")
    part(turn, A, b"v2", 0, 5, 10)
    part(turn, A, b"v2", 4, 9, 10)
    assert turn.expected_for(A, A) == H1
    part(turn, A, b"v2", 9, 10, 10)
    assert turn.expected_for(A, A) == H2
    assert turn.coverage_for(A, A).is_whole


def test_parts_of_different_versions_never_add_up() -> None:
    """Ruling 2: each part must be of the same version."""
    turn = context()
    whole(turn, A, b"v1")
    part(turn, A, b"v2", 0, 5, 10)
    part(turn, A, b"v3", 5, 10, 10)
    assert turn.expected_for(A, A) == H1
    part(turn, A, b"v2", 5, 10, 10)
    assert turn.expected_for(A, A) == H1, "the first half was forgotten when v3 was seen"


def test_parts_of_the_baseline_add_up() -> None:
    """Ruling 11."""
    turn = context()
    part(turn, A, b"v1", 0, 5, 10)
    assert turn.coverage_for(A, A) == Coverage(((0, 5),), 10)
    part(turn, A, b"v1", 7, 10, 10)
    assert not turn.coverage_for(A, A).is_whole
    part(turn, A, b"v1", 5, 7, 10)
    assert turn.coverage_for(A, A).is_whole


def test_after_conflict_only_a_read_that_follows_a_refusal_moves_the_baseline() -> None:
    """Ruling 2, `rebaseline = "after-conflict"`; 009's assumption "the hash from the first read"."""
    turn = context(rebaseline="after-conflict")
    whole(turn, A, b"v1")
    whole(turn, A, b"v2")
    assert turn.expected_for(A, A) == H1
    turn.refused(A, A, H3, H1)
    part(turn, A, b"v2", 0, 5, 10)
    assert turn.expected_for(A, A) == H1
    whole(turn, A, b"v2")
    assert turn.expected_for(A, A) == H2
    whole(turn, A, b"v3")
    assert turn.expected_for(A, A) == H2, "one refusal is worth one re-read"
    turn.wrote(A, A, H3, b"v3")
    assert turn.expected_for(A, A) == H3


def test_after_conflict_parts_seen_before_the_refusal_do_not_count() -> None:
    """Ruling 2: "a read that follows a STALE_FILE"."""
    turn = context(rebaseline="after-conflict")
    whole(turn, A, b"v1")
    part(turn, A, b"v2", 0, 5, 10)
    turn.refused(A, A, H3, H1)
    part(turn, A, b"v2", 5, 10, 10)
    assert turn.expected_for(A, A) == H1
    part(turn, A, b"v2", 0, 5, 10)
    assert turn.expected_for(A, A) == H2


# -- names ---------------------------------------------------------------------------------------------


def test_a_file_read_through_a_link_is_known_by_both_names() -> None:
    """010-FR-002: canonical, and as the agent called it."""
    turn = context()
    whole(turn, A, b"v1", canonical=B)
    assert turn.get_initial_hash(A) == turn.get_initial_hash(B) == H1
    assert turn.expected_for(B, B) == turn.expected_for(A, B) == H1


def test_own_writes_through_one_name_move_the_baseline_of_all() -> None:
    """009-SC-002: an own write through another link is no conflict."""
    turn = context()
    whole(turn, A, b"v1", canonical=B)
    whole(turn, f"{ROOT}/other", b"v1", canonical=B)
    turn.wrote(A, B, H2, b"v2")
    assert turn.expected_for(f"{ROOT}/other", B) == H2


def test_what_was_seen_under_a_name_wins_when_the_name_becomes_a_link() -> None:
    """N-link-swap: `a.md` was read, and is now a link to `b.md`: not a file that was never read."""
    turn = context()
    whole(turn, A, b"v1")
    assert turn.expected_for(A, B) == H1
    whole(turn, B, b"v2")
    assert turn.expected_for(A, B) == H1


def test_a_name_follows_its_link_only_when_the_whole_new_file_was_read() -> None:
    """Ruling 2, for names: a glimpse through a swapped link does not move what a write is checked against."""
    turn = context()
    whole(turn, A, b"v1")
    turn.observe(A, B, H2, b"v2", Coverage(((0, 1),), 2))
    assert turn.expected_for(A, B) == H1
    whole(turn, A, b"v2", canonical=B)
    assert turn.expected_for(A, B) == H2
    assert turn.get_initial_hash(A) == H1, "the name's first hash stands"


def test_after_conflict_a_swapped_link_is_followed_after_a_refusal_only() -> None:
    """Ruling 2, for names."""
    turn = context(rebaseline="after-conflict")
    whole(turn, A, b"v1")
    whole(turn, A, b"v2", canonical=B)
    assert turn.expected_for(A, B) == H1
    turn.refused(A, B, None, H1)
    assert turn.name_to_reread(B) == A
    whole(turn, A, b"v2", canonical=B)
    assert turn.expected_for(A, B) == H2


# -- observations --------------------------------------------------------------------------------------


def test_every_observation_of_the_turn_is_found_by_its_id() -> None:
    """Ruling 9: an observation id stands for a hash."""
    turn = context()
    seen: list[Observation] = [
        whole(turn, A, b"v1"),
        part(turn, A, b"v2", 0, 1, 3),
        turn.observe_absent(B, B),
    ]
    for observation in seen:
        found = turn.observation(observation.id)
        assert (found.path, found.sha256, found.at_s) == (
            observation.path,
            observation.sha256,
            observation.at_s,
        )
        assert found.seen.is_whole == observation.seen.is_whole
    assert turn.observation(seen[1].id).seen == Coverage(((0, 1),), 3)


@pytest.mark.parametrize(
    "wrong", ["", "t1:", "t1:1", "t1:-1", "t2:0", "0", "t1:00", "t1:٠", "t1:99999999999"]
)
def test_an_id_of_another_turn_is_refused(wrong: str) -> None:
    """Ruling 9: an id that does not resolve is an error, never "unchecked"."""
    turn = context()
    whole(turn, A, b"v1")
    with pytest.raises(BadRequestError):
        turn.observation(wrong)


def test_a_turn_that_lasts_for_weeks_does_not_grow() -> None:
    """Finding R18: the latest reads and writes, each file's last write and its baseline stay."""
    turn = context()
    turn.wrote(B, B, H2, b"v2")
    sizes = []
    tracemalloc.start()
    for number in range(60_000):
        digest = sha256(str(number).encode())
        read = turn.observe(A, A, digest, None, WHOLE)
        turn.wrote(A, A, digest[::-1], None)
        if number % 15_000 == 14_999:
            sizes.append(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
    assert sizes[-1] < sizes[0] * 1.05
    assert turn.observation(read.id).sha256 == read.sha256
    assert turn.expected_for(A, A) == read.sha256[::-1]
    assert [(path, sha256) for path, sha256, _ in turn.last_writes()] == [(B, H2), (A, read.sha256[::-1])]
    with pytest.raises(BadRequestError, match="thousands of reads ago"):
        turn.observation(f"{turn.turn_id}:0")


def test_of_many_files_every_read_is_remembered() -> None:
    """Ruling 9: what is forgotten is for a file that is read again and again."""
    turn = context()
    first = whole(turn, "/w/0", b"v1")
    for number in range(1, 20_000):
        whole(turn, f"/w/{number}", b"v1")
    assert turn.observation(first.id).path == "/w/0"


# -- refused bytes -------------------------------------------------------------------------------------


def test_refused_bytes_are_remembered_with_the_baseline_they_were_made_from() -> None:
    """N-resubmission: until an own write lands."""
    turn = context()
    whole(turn, A, b"v1")
    turn.refused(A, A, H3, H1)
    whole(turn, A, b"v2")
    turn.refused(A, A, H3, H2)
    assert turn.refused_from(A, A, H3) == H1, "the first refusal counts: they were made from that"
    turn.wrote(A, A, H2, b"v2")
    assert turn.refused_from(A, A, H3) is None


# -- kept bytes ----------------------------------------------------------------------------------------


def test_bytes_of_baselines_are_kept_within_bounds_and_the_oldest_go_first() -> None:
    """N-bounded: 1 MiB a file and 64 MiB a turn, here smaller."""
    turn = context(retained_file_bytes=10, retained_turn_bytes=25)
    paths = [f"{ROOT}/{number}" for number in range(4)]
    whole(turn, paths[0], b"0" * 11)
    assert turn.baseline_bytes(paths[0], paths[0]) is None
    for number in (1, 2, 3):
        whole(turn, paths[number], b"%d" % number * 10)
    kept = [turn.baseline_bytes(path, path) for path in paths]
    assert kept == [None, None, b"2" * 10, b"3" * 10]
    assert turn.retained_bytes == 20
    whole(turn, paths[1], b"1" * 10)
    assert turn.baseline_bytes(paths[1], paths[1]) == b"1" * 10
    assert turn.baseline_bytes(paths[2], paths[2]) is None


def test_a_file_that_changed_is_as_old_as_its_last_version() -> None:
    """N-bounded: the oldest bytes go first, not the file that was read first."""
    turn = context(retained_turn_bytes=5)
    whole(turn, A, b"v1")
    whole(turn, B, b"b1")
    whole(turn, A, b"v2")
    whole(turn, f"{ROOT}/c.md", b"c1")
    assert turn.baseline_bytes(A, A) == b"v2"
    assert turn.baseline_bytes(B, B) is None


def test_bytes_are_always_those_of_the_baseline() -> None:
    """`changes_since_read` must not compare with a version that the write is not checked against."""
    turn = context()
    whole(turn, A, b"v1")
    part(turn, A, b"v2", 0, 1, 2)
    assert turn.baseline_bytes(A, A) == b"v1"
    part(turn, A, b"v2", 1, 2, 2)
    assert turn.baseline_bytes(A, A) == b"v2"
    turn.wrote(A, A, H3, None)
    assert turn.baseline_bytes(A, A) is None
    assert turn.retained_bytes == 0
    turn.removed(A, A)
    assert turn.baseline_bytes(A, A) == b""


# -- the end -------------------------------------------------------------------------------------------


def test_clearing_forgets_everything() -> None:
    """010-FR-005."""
    turn = context()
    first = whole(turn, A, b"v1", canonical=B)
    turn.clear()
    assert turn.get_initial_hash(A) is turn.get_initial_hash(B) is turn.expected_for(A, B) is None
    assert len(turn) == turn.retained_bytes == 0
    with pytest.raises(BadRequestError):
        turn.observation(first.id)


@pytest.mark.parametrize(
    "call",
    [
        lambda turn: turn.get_initial_hash(A),
        lambda turn: turn.get_initial_hash(Path("a.md")),
        lambda turn: turn.expected_for(A, A),
        lambda turn: turn.coverage_for(A, A),
        lambda turn: turn.baseline_bytes(A, A),
        lambda turn: turn.error_for(A, A),
        lambda turn: turn.starts_with_bom(A, A),
        lambda turn: turn.observation("t1:0"),
        lambda turn: whole(turn, A, b"v1"),
        lambda turn: turn.observe_absent(A, A),
        lambda turn: turn.observe_error(A, A, "X"),
        lambda turn: turn.wrote(A, A, H1, b"v1"),
        lambda turn: turn.removed(A, A),
        lambda turn: turn.refused(A, A, H1, H2),
        lambda turn: turn.refused_from(A, A, H1),
        lambda turn: turn.name_to_reread(A),
        lambda turn: turn.remember(),
        lambda turn: turn.inherit({}, {}) or len(turn),
        lambda turn: len(turn),
    ],
)
def test_after_its_end_a_turn_answers_nothing(call: Callable[..., Any]) -> None:
    """010-FR-005: a snapshot that is gone must not look like one that is empty."""
    turn = context()
    whole(turn, A, b"v1")
    turn.end()
    turn.end()
    with pytest.raises(TurnClosedError):
        call(turn)


def test_nothing_of_a_turn_is_alive_after_it() -> None:
    """010-SC-003, R-turn: counted, not assumed."""

    def alive() -> int:
        gc.collect()
        return sum(
            type(found).__module__ in ("noclobber.guard.snapshot", "noclobber.guard.observations")
            for found in gc.get_objects()
        )

    before = alive()
    turn = context()
    for number in range(1_000):
        whole(turn, f"{ROOT}/{number}", b"%d" % number, canonical=f"{ROOT}/real/{number}")
        turn.refused(f"{ROOT}/{number}", f"{ROOT}/real/{number}", H1, H2)
    assert alive() > before + 3_000
    turn.end()
    assert alive() <= before + 2, "the turn itself and its empty log"
    del turn
    assert alive() == before


def test_two_threads_that_read_one_file_first_get_one_hash() -> None:
    """010-FR-003: the initial hash is set once, whoever comes first."""
    for _ in range(50):
        turn = context()
        start = threading.Barrier(8)
        seen: list[str | None] = []

        def read(
            number: int, turn: TurnContext = turn, start: threading.Barrier = start, seen: list[Any] = seen
        ) -> None:
            start.wait()
            whole(turn, A, b"%d" % number)
            seen.append(turn.get_initial_hash(A))

        threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(seen) == 8
        assert len(set(seen)) == 1
        assert len(turn) == 1


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
def test_a_forked_child_never_finds_the_snapshot_locked() -> None:
    """N-fork: fork while another thread is busy in the turn; the child uses it at once."""
    turn = context()
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            whole(turn, A, b"v1")
            turn.expected_for(A, A)

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(30):
            child = os.fork()
            if child == 0:
                signal.alarm(20)  # A child that waits for ever would outlive the test that it fails.
                turn.wrote(B, B, H2, None)
                os._exit(0 if turn.expected_for(B, B) == H2 else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        thread.join()
    assert turn.expected_for(B, B) is None, "a child's turn is its own"


def test_a_stored_hash_is_found_without_the_disk_and_without_hashing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """010-SC-004, 010-FR-006: and `make bench` says how much faster that is."""
    file = tmp_path / "large"
    file.write_bytes(b"x" * 100_000)
    turn = TurnContext(str(tmp_path), turn_id="t1")
    whole(turn, str(file), file.read_bytes())

    expected = sha256(file.read_bytes())
    file.unlink()
    monkeypatch.setattr(hashing, "sha256", lambda *_: pytest.fail("it hashed"))
    for name in ("open", "stat", "lstat", "readlink", "getcwd"):
        monkeypatch.setattr(os, name, lambda *_, **__: pytest.fail("it looked at the disk"))
    assert turn.get_initial_hash("large") == expected
