"""
Every object that leaves the program, checked against its schema wherever a test sees one.

- `check()`: one object, by its `error_type` or, for a line of a ledger, by its chain.
- `check_texts_in()`: what a hook tells its host, where the object is JSON text inside the host's own answer.
- `check_output()`: what a command prints.
- `Errors`: every error that is made in the process of a test, and every projection of one.
- `check_ledgers()`: every ledger that a test leaves behind.

The last two run for every test: see `tests/conftest.py`.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from noclobber.core.wire import schema
from noclobber.errors import LockContention, RefusalError, StaleFileError


@functools.cache
def validator(name: str) -> Any:
    """A schema, ready to check values with."""
    return jsonschema.Draft202012Validator(schema(name))


def schema_for(value: dict[str, Any]) -> str:
    """The name of the schema that an object has to fit."""
    if "prev_hash" in value:
        return "ledger-event"
    kind = value.get("error_type")
    if kind == StaleFileError.code:
        return "stale-file-controller" if "file_path" in value else "stale-file-agent"
    if kind == LockContention.code:
        return "lock-contention"
    return "refusal"


def check(value: dict[str, Any], name: str | None = None) -> None:
    """Fail if an object does not fit its schema."""
    validator(name or schema_for(value)).validate(value)


def check_texts_in(answer: object) -> int:
    """Check every object that a hook's answer has as text; return how many there were."""
    if isinstance(answer, dict):
        return sum(map(check_texts_in, answer.values()))
    if not isinstance(answer, str) or not answer.startswith("{"):
        return 0
    value, _ = json.JSONDecoder().raw_decode(answer)  # What helps the model to go on may follow.
    assert value.get("error_type") != StaleFileError.code or "file_path" not in value, "for controllers only"
    check(value)
    return 1


def check_output(text: str) -> None:
    """Check every error in what a command printed as JSON."""
    for candidate in (text, *text.splitlines()):
        if not candidate.startswith("{"):
            continue
        try:
            value = json.loads(candidate)
        except ValueError:
            continue
        if "error_type" in value:
            check(value)


class Errors:
    """Checks every error as it is made, and every projection; what is wrong is told after the test."""

    PROJECTIONS = (
        (StaleFileError, "to_agent", "stale-file-agent"),
        (StaleFileError, "to_controller", "stale-file-controller"),
        (RefusalError, "to_refusal", "refusal"),
        (LockContention, "to_report", "lock-contention"),
    )

    def __init__(self) -> None:
        # Not raised where it is found: a hook would take that for a failure of its own, and refuse.
        self.wrong: list[str] = []

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """Look at errors from now on."""
        for kind, name, which in self.PROJECTIONS:
            patch.setattr(kind, name, self._checked(getattr(kind, name), which))
        patch.setattr(StaleFileError, "__init__", self._projected(StaleFileError.__init__, "to_agent"))
        patch.setattr(RefusalError, "__init__", self._projected(RefusalError.__init__, "to_refusal"))

    def _checked(self, project: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
        @functools.wraps(project)
        def projected(error: Any) -> Any:
            value = project(error)
            for problem in validator(name).iter_errors(value):
                self.wrong.append(f"{type(error).__name__}, {name}: {problem.message} in {value}")
            return value

        return projected

    def _projected(self, make: Callable[..., None], name: str) -> Callable[..., None]:
        @functools.wraps(make)
        def made(error: Any, *given: Any, **more: Any) -> None:
            make(error, *given, **more)
            # A commit tells itself with an empty baseline that a file which nobody had read has gone.
            if not isinstance(error, StaleFileError) or error.expected:
                getattr(error, name)()

        return made


def check_ledgers(folder: Path) -> None:
    """Check every line of every ledger below a folder."""
    for place, _, names in os.walk(folder):
        for name in names:
            if name in ("agent_trace.jsonl", ".lock-ledger.jsonl"):
                _check_ledger(Path(place, name))


def _check_ledger(path: Path) -> None:
    if not path.is_file() or path.is_symlink():
        return
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return
    for number, line in enumerate(lines, 1):
        for problem in validator("ledger-event").iter_errors(json.loads(line)):
            raise AssertionError(f"{path}, line {number}: {problem.message}\n{line!r}")
