"""
Scenarios that do not end as ruled yet, by host, with the finding. A fix removes its lines: the marks are strict.
"""

from __future__ import annotations

import pytest

KNOWN: dict[tuple[str, str], str] = {}


def marks(host: str, scenario: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a cell of the table."""
    cell = host, scenario
    return [pytest.mark.xfail(strict=True, reason=KNOWN[cell])] if cell in KNOWN else []
