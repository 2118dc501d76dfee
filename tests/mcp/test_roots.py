"""No path leads out of the roots."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noclobber.mcp.reference.os_errors import RewordedError
from noclobber.mcp.roots import Roots


@given(
    parts=st.lists(st.sampled_from(["..", ".", "", "in", "out", "up", "file", "new", "~", "\0"]), max_size=7)
)
def test_no_path_leads_out_of_the_roots(parts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    """N-mcp: paths are confined to the roots, links included."""
    top = tmp_path_factory.getbasetemp() / "confined"
    root = top / "root"
    if not root.exists():
        (root / "in").mkdir(parents=True)
        (top / "file").write_text("outside")
        (root / "file").write_text("inside")
        (root / "out").symlink_to(top)
        (root / "in" / "up").symlink_to("../..")
    home = str(root.resolve())

    try:
        located = Roots([str(root)]).locate("/".join(parts))
    except RewordedError:
        return

    assert located.real == home or located.real.startswith(f"{home}/")
    assert Path(located.real).resolve() == Path(located.real)
