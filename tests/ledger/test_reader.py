"""A ledger from its end."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noclobber.ledger.reader import lines_backwards

pytestmark = pytest.mark.broken_ledger


@given(
    lines=st.lists(st.binary(min_size=1, max_size=40).filter(lambda line: b"\n" not in line), max_size=30),
    block_bytes=st.integers(1, 200),
)
def test_every_line_comes_once_and_the_last_one_first(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], block_bytes: int
) -> None:
    """N-view: whatever the size of a block, and wherever it begins."""
    path = tmp_path_factory.mktemp("ledger") / "lines.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    found = [line for line in lines_backwards(str(path), block_bytes) if line is not None]
    assert found == lines[::-1]


def test_no_ledger_has_no_lines(tmp_path: Path) -> None:
    """N-view: who looks for something does not find it."""
    assert list(lines_backwards(str(tmp_path / "none"))) == []
