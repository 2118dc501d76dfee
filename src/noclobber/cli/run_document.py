"""
`noclobber run --json` and `lock run --json`: stdout has one document, so the command's output goes to stderr.

A command may print anything, also JSON, and without end. Nobody could tell it from our document if they were
mixed, and inside the document it would have to be held in memory until the end. So the command's stdout is
our stderr, and the document comes after it: the report that `--report` writes, or the object of what was
refused.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from noclobber.cli.clean_output import data_out
from noclobber.core.json_text import spell_for_any_reader
from noclobber.core.wire import to_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noclobber.cli.run import Asked
    from noclobber.errors import NoclobberError


@contextmanager
def output_on_stderr() -> Iterator[None]:
    """What is started inside writes to our stderr what it writes to its stdout."""
    sys.stdout.flush()
    before = os.dup(1)  # Closed by an `exec`: the command cannot write to it, nor keep it open.
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(before, 1)
        os.close(before)


def answered(asked: Asked) -> tuple[int, dict[str, Any]]:
    """Run a command; return its exit code, and the document."""
    from noclobber.cli.run import at_best_level

    asked.answer, asked.died_of = {}, 0
    with output_on_stderr():
        code = at_best_level(asked)
    assert asked.answer, "every way out of a run leaves its report, or its refusal"
    return code, asked.answer


def object_of(error: NoclobberError) -> dict[str, Any]:
    """Return an error as the object that programs get, whatever kind it is."""
    try:
        return to_object(error)
    except TypeError:  # It is no refusal: a fact about what was to be done.
        about = {"error_type": error.code, "file_path": "", "message": str(error) or error.code}
        return {**about, "resolution": error.resolution, "details": {}}


def print_answer(answer: object) -> None:
    """Print the document."""
    print(spell_for_any_reader(answer), file=data_out(), flush=True)
