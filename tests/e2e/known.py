"""
Scenarios that do not end as ruled yet, by host, with the finding. A fix removes its lines: the marks are strict.
"""

from __future__ import annotations

import pytest

KNOWN: dict[tuple[str, str], str] = {}

WATCH = "finding H4: on a busy machine the watch may miss a save that the host's write follows at once"

HALF = "finding H4: the watch may take the host's own write, in the middle, for a save"

SOMETIMES: dict[tuple[str, str], str] = {
    ("codex", "approved_write"): WATCH,
    ("copilot", "approved_edit"): WATCH,
    ("copilot", "approved_write"): WATCH,
    ("gemini", "approved_write"): WATCH,
    ("opencode", "huge"): HALF,
    ("opencode", "large"): HALF,
}
"""The same for what depends on who is faster."""


def marks(host: str, scenario: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a cell of the table."""
    cell = host, scenario
    if cell in KNOWN:
        return [pytest.mark.xfail(strict=True, reason=KNOWN[cell])]
    return [pytest.mark.xfail(strict=False, reason=SOMETIMES[cell])] if cell in SOMETIMES else []
