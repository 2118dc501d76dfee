"""
The content of a shared file, made so that losses can be proved.

Every version says who wrote it, which version it is based on, which of the outsider's updates it holds, and
how long it is, with a checksum:

    slot 0000000000
    id=g0:5 from=o:17 o=1-17 len=61 sum=9ce3e7c3
    g0=5 g1=7
    ....................................padding of varying length
    end g0:5
    +0000000018

- `id` is unique for a whole run, so no content ever comes back legitimately. This makes most of the
  accounting simple: an old id that is seen again is always a fault.
- `o=` is the set of the outsider's updates, as ranges. An outsider adds to what it read and never drops
  one, so a missing number was dropped by somebody else. Sets, not a counter: a writer that appends
  without looking would hide the loss of 17 behind 18.
- `slot` is the same for writers that change bytes in place. It is outside the checksum, and holds
  the number of the latest update; whoever writes it looks at it first.
- Lines after `end` were appended by an outsider, one update each.

Parsing never fails: a half-written file is a fact to be reported, not an error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SLOT_OFFSET = 5
SLOT_WIDTH = 10
NO_ID = "-"
ABSENT_ID = "ABSENT"  # The parent of a version that created the file.
HALF_ID = "HALF"  # The parent of a version made from something that was not whole.

_HEAD = re.compile(
    rb"slot (\d{10})\nid=([a-z]+\d*:\d+) from=(\S+) o=((?:\d+-\d+,?)*) len=(\d+) sum=([0-9a-f]{8})\n"
)
_APPENDED = re.compile(rb"\+\d{10}")
_BEGUN = re.compile(rb"|\+\d{0,10}")
_COUNTER = re.compile(rb"([a-z]+\d*)=(\d+)")

Ranges = tuple[tuple[int, int], ...]


class Version(NamedTuple):
    """One content of the shared file, as far as it could be understood."""

    id: str
    parent: str
    tags: Ranges
    slot: int
    counters: Mapping[str, int]
    is_whole: bool

    def has(self, tag: int) -> bool:
        """True if the outsider's update `tag` is in here."""
        return tag <= self.slot or any(first <= tag <= last for first, last in self.tags)

    def missing(self, made: int) -> list[int]:
        """Which of the outsider's updates 1…made are not in here."""
        gaps: list[int] = []
        expected = self.slot + 1
        for first, last in self.tags:
            gaps.extend(range(expected, min(first, made + 1)))
            expected = max(expected, last + 1)
        gaps.extend(range(expected, made + 1))
        return gaps


def ranges_of(tags: Iterable[int]) -> Ranges:
    """Return the ranges that hold exactly these numbers."""
    out: list[tuple[int, int]] = []
    for tag in sorted(tags):
        if out and tag <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(tag, out[-1][1]))
        else:
            out.append((tag, tag))
    return tuple(out)


def with_tags(ranges: Ranges, tags: Sequence[int]) -> Ranges:
    """Add numbers to ranges. Nearly always they continue the last range, so that is looked at first."""
    out = list(ranges)
    for tag in tags:
        if out and out[-1][1] + 1 == tag:
            out[-1] = (out[-1][0], tag)
        elif not out or tag > out[-1][1]:
            out.append((tag, tag))
        elif not any(first <= tag <= last for first, last in out):
            return ranges_of([*tags, *(each for first, last in out for each in range(first, last + 1))])
    return tuple(out)


def render(
    own_id: str,
    parent: str,
    tags: Ranges,
    *,
    slot: int = 0,
    counters: Mapping[str, int] | None = None,
    padding_bytes: int = 0,
) -> bytes:
    """Return the bytes of a version."""
    told = " ".join(f"{name}={count}" for name, count in (counters or {}).items())
    body = f"{told}\n{'.' * padding_bytes}\nend {own_id}\n".encode()
    ranges = ",".join(f"{first}-{last}" for first, last in tags)
    head = f"id={own_id} from={parent} o={ranges} len={len(body)}".encode()
    total = crc32(body, crc32(head))
    return b"slot %010d\n%b sum=%08x\n%b" % (slot, head, total, body)


def parse(content: bytes) -> Version:
    """Parse as much of a content as there is."""
    head = _HEAD.match(content)
    if head is None:
        return Version(NO_ID, NO_ID, (), 0, {}, False)
    slot, own_id, parent, ranges, length, told_sum = head.groups()
    body_end = head.end() + int(length)
    body = content[head.end() : body_end]
    described = content[len(b"slot 0000000000\n") : head.start(6) - len(b" sum=")]
    is_whole = len(body) == int(length) and b"%08x" % crc32(body, crc32(described)) == told_sum
    pairs = (each.partition(b"-") for each in ranges.split(b",") if each)
    tags: Ranges = tuple((int(first), int(last)) for first, _, last in pairs)
    tail = content[body_end:]
    if is_whole and tail:
        *lines, unfinished = tail.split(b"\n")
        # The kernel shows an append that crosses a page in two steps. Its first part is not there yet.
        is_whole = bool(_BEGUN.fullmatch(unfinished)) and all(_APPENDED.fullmatch(line) for line in lines)
        tags = with_tags(tags, [int(line[1:]) for line in lines]) if is_whole else tags
    counters = {name.decode(): int(count) for name, count in _COUNTER.findall(body.partition(b"\n")[0])}
    return Version(own_id.decode(), parent.decode(errors="replace"), tags, int(slot), counters, is_whole)
