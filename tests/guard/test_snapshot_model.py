"""The snapshot against a model that is too simple to be wrong: a list of everything that happened."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from noclobber.core.values import WHOLE, Coverage
from noclobber.errors import ABSENT
from noclobber.guard.snapshot import TurnContext
from tests.conftest import sha256

PROPERTY = settings(deadline=None)  # A busy machine is no counter-example.

LINES = 4
VERSIONS = [b"v%d" % number for number in range(3)]
PATHS = ["/root/a", "/root/b"]

READS = st.tuples(
    st.just("read"),
    st.sampled_from(PATHS),
    st.sampled_from(VERSIONS),
    st.integers(0, LINES),
    st.integers(0, LINES),
)
OTHERS = st.tuples(
    st.sampled_from(["absent", "error", "wrote", "refused", "removed"]),
    st.sampled_from(PATHS),
    st.sampled_from(VERSIONS),
    st.just(0),
    st.just(0),
)
EVENTS = st.lists(st.one_of(READS, OTHERS), max_size=40)


class Model:
    """Rulings 1, 2, 5, 6 and 10 for one file, told from its history by looking back each time."""

    def __init__(self, rebaseline: str) -> None:
        self.rebaseline = rebaseline
        self.initial: str | None = None
        self.baseline: str | None = None
        self.lines: set[int] = set()  # Seen of the baseline.
        self.newer: str | None = None
        self.newer_lines: set[int] = set()
        self.conflict = False

    def may_move(self) -> bool:
        return self.rebaseline == "on-read" or self.conflict

    def take(self, found: str, lines: set[int]) -> None:
        self.baseline, self.lines = found, set(lines)
        self.newer, self.newer_lines, self.conflict = None, set(), False

    def found(self, found: str, lines: set[int]) -> None:
        everything = set(range(LINES))
        if self.baseline is None or (self.baseline == ABSENT != found and self.may_move()):
            self.take(found, lines)
        elif self.baseline == found:
            self.lines |= lines
            self.conflict = False
        elif lines == everything:
            if self.may_move():
                self.take(found, lines)
        else:
            if self.newer != found:
                self.newer, self.newer_lines = found, set()
            self.newer_lines |= lines
            if self.newer_lines == everything and self.may_move():
                self.take(found, everything)

    def event(self, kind: str, version: bytes, first: int, last: int) -> None:
        everything = set(range(LINES))
        if kind == "read":
            self.initial = self.initial or sha256(version)
            self.found(sha256(version), set(range(first, last)))
        elif kind == "absent":
            self.found(ABSENT, everything)
        elif kind == "wrote":
            self.take(sha256(version), everything)
        elif kind == "removed":
            self.take(ABSENT, everything)
        elif kind == "refused":
            self.conflict = True
            if self.rebaseline == "after-conflict":
                self.newer, self.newer_lines = None, set()


def tell(turn: TurnContext, kind: str, path: str, version: bytes, first: int, last: int) -> None:
    if kind == "read":
        ranges = ((first, last),) if first < last else ()
        turn.observe(path, path, sha256(version), version, Coverage(ranges, LINES))
    elif kind == "absent":
        turn.observe_absent(path, path)
    elif kind == "error":
        turn.observe_error(path, path, "UNREADABLE")
    elif kind == "wrote":
        turn.wrote(path, path, sha256(version), version)
    elif kind == "removed":
        turn.removed(path, path)
    else:
        turn.refused(path, path, sha256(version), None)


@PROPERTY
@given(events=EVENTS, rebaseline=st.sampled_from(["on-read", "after-conflict"]))
def test_the_snapshot_does_what_the_rulings_say(events: Any, rebaseline: Any) -> None:
    """009-FR-001, 009-FR-007, 010-FR-003, rulings 1, 2, 5, 6, 10, 11."""
    turn = TurnContext("/root", turn_id="t", rebaseline=rebaseline)
    models = {path: Model(rebaseline) for path in PATHS}
    for event in events:
        kind, path, version, first, last = event
        tell(turn, *event)
        models[path].event(kind, version, first, last)
        for name, model in models.items():
            assert turn.get_initial_hash(name) == model.initial
            assert turn.expected_for(name, name) == model.baseline
            if model.baseline not in (None, ABSENT):
                coverage = turn.coverage_for(name, name)
                assert coverage.is_whole == (model.lines == set(range(LINES)))
                kept = turn.baseline_bytes(name, name)
                assert kept is None or sha256(kept) == model.baseline


@PROPERTY
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=12), st.integers(0, 12))
def test_coverage_adds_up_like_a_set_of_lines(ranges: list[tuple[int, int]], total: int) -> None:
    """Ruling 11: contiguous parts at one hash add up; nothing else does."""
    coverage, lines = Coverage((), total), set()
    for first, last in ranges:
        first, last = min(first, total), min(last, total)
        coverage = coverage.plus(Coverage(((first, last),) if first < last else (), total))
        lines |= set(range(first, last))
    assert {line for first, last in coverage.ranges for line in range(first, last)} == lines
    assert coverage.is_whole == (lines == set(range(total)))
    assert all(one[1] < other[0] for one, other in zip(coverage.ranges, coverage.ranges[1:], strict=False))


@PROPERTY
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 30), st.booleans()),
        max_size=60,
    )
)
@example([(1, 12, False), (1, 12, False), (2, 19, False), (0, 20, False), (1, 12, False)])
@example([(1, 8, False), (0, 10, False), (1, 0, False), (2, 13, False), (3, 20, False), (1, 8, False)])
def test_kept_bytes_stay_within_bounds_whatever_is_read(reads: list[tuple[int, int, bool]]) -> None:
    """N-bounded: the sum is what is kept, and never more than the bound."""
    turn = TurnContext("/root", turn_id="t", retained_file_bytes=20, retained_turn_bytes=50)
    paths = [f"/root/{number}" for number in range(6)]
    for number, size, is_write in reads:
        data = bytes([size]) * size
        path = paths[number]
        if is_write:
            turn.wrote(path, path, sha256(data), data)
        else:
            turn.observe(path, path, sha256(data), data, WHOLE)
        kept = [turn.baseline_bytes(path, path) or b"" for path in paths]
        assert sum(map(len, kept)) == turn.retained_bytes <= 50
        assert max(map(len, kept)) <= 20
        if size <= 20:
            assert turn.baseline_bytes(path, path) == data, "the newest is never the one to go"
