"""What must hold for any chain, whatever its events and whatever is done to it."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noclobber.errors import BrokenChainError
from noclobber.ledger import AgentTraceLedger

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
EVENTS = st.lists(
    st.fixed_dictionaries({"action_type": TEXT.filter(bool), "payload": JSON, "result": JSON}),
    min_size=2,
    max_size=6,
)
PROPERTY = settings(max_examples=60, deadline=None)


class Chain:
    """A ledger of some events in a scratch folder, and its lines."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.ledger = AgentTraceLedger(os.path.join(self.folder.name, "trace.jsonl"))
        self.entries = [self.ledger.append(event) for event in events]
        with open(self.ledger.path, "rb") as file:
            self.lines = file.read().splitlines(keepends=True)

    def write(self, data: bytes | bytearray) -> None:
        with open(self.ledger.path, "wb") as file:
            file.write(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ledger.close()
        self.folder.cleanup()


@PROPERTY
@given(events=EVENTS)
def test_what_is_recorded_is_what_is_read(events: Any) -> None:
    """R-ledger: any JSON there is, in order, nothing added but the envelope."""
    with Chain(events) as chain:
        own = [
            {name: line[name] for name in ("action_type", "payload", "result")}
            for line in chain.ledger.events()
        ]
        assert own == events
        report = chain.ledger.verify(head=chain.entries[-1].hash)
        assert (report.event_count, report.head) == (len(events), chain.entries[-1].hash)
        assert len(chain.lines) == len(events)


@PROPERTY
@given(events=EVENTS, data=st.data())
def test_altering_any_byte_breaks_the_chain(events: Any, data: st.DataObject) -> None:
    """R-ledger: one byte, anywhere; the last newline alone makes the end torn, which the head shows."""
    with Chain(events) as chain:
        content = bytearray(b"".join(chain.lines))
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] ^= data.draw(st.integers(1, 255))
        chain.write(content)

        if place == len(content) - 1:
            assert chain.ledger.verify().torn_bytes > 0
            with pytest.raises(BrokenChainError):
                chain.ledger.verify(head=chain.entries[-1].hash)
        else:
            with pytest.raises(BrokenChainError) as broken:
                chain.ledger.verify()
            assert broken.value.details["line"] == 1 + bytes(b"".join(chain.lines))[:place].count(b"\n")


@PROPERTY
@given(events=EVENTS, data=st.data())
def test_removing_any_line_but_the_last_breaks_the_chain(events: Any, data: st.DataObject) -> None:
    """R-ledger: and the line that took its place is named."""
    with Chain(events) as chain:
        gone = data.draw(st.integers(0, len(chain.lines) - 2))
        del chain.lines[gone]
        chain.write(b"".join(chain.lines))

        with pytest.raises(BrokenChainError, match="removed") as broken:
            chain.ledger.verify()
        assert broken.value.details["line"] == gone + 1
        assert broken.value.details["event_count"] == gone


@PROPERTY
@given(events=EVENTS, data=st.data())
def test_removing_any_number_of_last_lines_is_caught_by_the_head(events: Any, data: st.DataObject) -> None:
    """R-ledger: from inside it cannot be seen; with the head it always is."""
    with Chain(events) as chain:
        left = data.draw(st.integers(0, len(chain.lines) - 1))
        chain.write(b"".join(chain.lines[:left]))

        assert chain.ledger.verify().event_count == left
        with pytest.raises(BrokenChainError):
            chain.ledger.verify(head=chain.entries[-1].hash)


@PROPERTY
@given(events=EVENTS, data=st.data())
def test_swapping_or_repeating_lines_breaks_the_chain(events: Any, data: st.DataObject) -> None:
    """R-ledger: order is proved."""
    with Chain(events) as chain:
        place = st.integers(0, len(chain.lines) - 1)
        one, other = data.draw(st.tuples(place, place).filter(lambda pair: pair[0] != pair[1]))
        lines = list(chain.lines)
        lines[one], lines[other] = lines[other], lines[one]
        chain.write(b"".join(lines))
        with pytest.raises(BrokenChainError) as broken:
            chain.ledger.verify()
        assert broken.value.details["line"] == min(one, other) + 1

        chain.write(b"".join([*chain.lines, chain.lines[one]]))
        with pytest.raises(BrokenChainError):
            chain.ledger.verify()


@PROPERTY
@given(events=EVENTS, data=st.data())
def test_a_ledger_cut_anywhere_takes_the_next_event(events: Any, data: st.DataObject) -> None:
    """R-ledger: whatever length a crash leaves, what is complete stays, what is torn is kept beside it."""
    with Chain(events) as chain:
        content = b"".join(chain.lines)
        length = data.draw(st.integers(0, len(content)))
        chain.write(content[:length])
        fresh = AgentTraceLedger(chain.ledger.path)

        entry = fresh.append({"action_type": "AFTER"})

        report = fresh.verify()
        whole = content[:length].count(b"\n")
        with open(fresh.path, "rb") as file:
            assert file.read().startswith(b"".join(chain.lines[:whole]))
        if report.set_aside:
            assert entry.set_aside is not None
            with open(entry.set_aside, "rb") as file:
                assert file.read() == content[sum(map(len, chain.lines[:whole])) : length]
        assert report.event_count == whole + 1 + (length > sum(map(len, chain.lines[:whole])))
