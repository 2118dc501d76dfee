"""
A small coverage-guided fuzzer: no dependency, any Python, the same inputs for the same seed.

An input that reaches lines of the package that no earlier one reached joins the corpus, and later inputs are
mutations of those. A target fails if it raises, or if it runs more lines than its bound: a reader's time must
be bounded, and lines are the same on every machine where seconds are not. What takes for ever without running
a line (a regular expression) is ended after some seconds of computing, which no input of this size needs.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple

import noclobber

PACKAGE = os.path.dirname(noclobber.__file__)
MOST_BYTES = 6000
MOST_COMPUTING_S = 10.0
BASE_LINES, LINES_A_BYTE = 100_000, 400
TOKENS = (
    b"\x00",
    b"\n",
    b"\r\n",
    b"..",
    b"../",
    b"/",
    b"~",
    b"\\",
    b'"',
    b"'",
    b"{",
    b"}",
    b"[",
    b"]",
    b"null",
    b"true",
    b"-1",
    b"0",
    b"1e999",
    b"99999999999999999999",
    b"NaN",
    b"Infinity",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\\ud800",
    b"\\u0000",
    b"$(",
    b"`",
    b"<<EOF\n",
    b"EOF\n",
    b"&&",
    b"|",
    b";",
    b">",
    b"*** Update File: ",
    b"*** End Patch\n",
    b"@@",
    b"/etc/passwd",
    b"../../outside/secret",
    b"\xe2\x80\xae",
    b"[" * 200,
    b'{"a":' * 60,
    b"a" * 300,
)


class Target(NamedTuple):
    """One reader: it gets bytes, and may raise nothing but what it documents (which it catches itself)."""

    name: str
    read: Callable[[bytes], object]
    seeds: Sequence[bytes]


class Failure(NamedTuple):
    """An input that broke a target."""

    target: str
    data: bytes
    why: str


class RanOnError(BaseException):
    """A reader that may never end. Not an `Exception`, because a hook answers every one of those."""


class Coverage:
    """Which lines of the package a call reached, and how many it ran."""

    def __init__(self) -> None:
        self.lines: set[tuple[CodeType, int]] = set()
        self.ran, self.most = 0, BASE_LINES

    def _of_call(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        return self._of_line

    def _of_line(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        if event == "line":
            self.ran += 1
            if self.ran > self.most:
                raise RanOnError(f"it ran more than {self.most} lines, which is the bound")
            self.lines.add((frame.f_code, frame.f_lineno))
        return self._of_line

    def __enter__(self) -> Coverage:
        self.ran, self._before = 0, sys.gettrace()
        sys.settrace(self._of_call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)


def mutate(data: bytes, corpus: Sequence[bytes], chance: random.Random) -> bytes:
    """Change an input in a few places."""
    text = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        at, kind = chance.randrange(len(text) + 1), chance.randrange(7)
        end = min(len(text), at + chance.choice((1, 2, 4, 16, 64)))
        if kind == 0:
            text[at:at] = chance.choice(TOKENS)
        elif kind == 1:
            text[at:end] = chance.choice(TOKENS)
        elif kind == 2:
            del text[at:end]
        elif kind == 3 and at < len(text):
            text[at] ^= 1 << chance.randrange(8)
        elif kind == 4:
            text[at:at] = text[at:end] * chance.choice((1, 2, 8))
        elif kind == 5:
            other = chance.choice(corpus)
            start = chance.randrange(len(other) + 1)
            text[at:at] = other[start : start + chance.choice((4, 16, 64))]
        else:
            text[at:end] = chance.randbytes(end - at)
    return bytes(text[:MOST_BYTES])


def _run(target: Target, data: bytes, coverage: Coverage) -> str:
    """Return why the target failed, or nothing."""
    coverage.most = BASE_LINES + LINES_A_BYTE * len(data)
    before = signal.signal(signal.SIGVTALRM, _ran_on)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_COMPUTING_S)
    try:
        with coverage:
            target.read(data)
    except (Exception, RanOnError):
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
    return ""


def _ran_on(*_: object) -> None:
    raise RanOnError(f"it computed for more than {MOST_COMPUTING_S:g} s")


def fuzz(
    target: Target, seed: int, *, most_inputs: int = 0, seconds: float = 0.0
) -> tuple[Failure | None, int, int]:
    """Fuzz until something breaks or the budget is used; return the failure, inputs tried, lines reached."""
    chance, coverage = random.Random(f"{seed} {target.name}"), Coverage()
    corpus = list(target.seeds)
    end_s = time.monotonic() + seconds
    tried = 0
    while tried < max(most_inputs, len(target.seeds)) or time.monotonic() < end_s:
        data = (
            target.seeds[tried]
            if tried < len(target.seeds)
            else mutate(chance.choice(corpus), corpus, chance)
        )
        tried += 1
        before = len(coverage.lines)
        if why := _run(target, data, coverage):
            return Failure(target.name, data, why), tried, len(coverage.lines)
        if len(coverage.lines) > before:
            corpus.append(data)
    return None, tried, len(coverage.lines)
