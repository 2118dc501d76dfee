"""No path leads out of the roots."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noclobber.errors import RefusalError
from noclobber.mcp import roots
from noclobber.mcp.roots import Roots
from tests.disk.test_paths import namespace_with_mount


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
    except RefusalError:
        return

    assert located.real == home or located.real.startswith(f"{home}/")
    assert Path(located.real).resolve() == Path(located.real)


def test_a_link_that_leads_to_its_own_name_in_another_namespace_is_refused(root: Path) -> None:
    """finding S14: `realpath` went round in circles, and every call for that path was answered as a bug."""
    (root / "sub").symlink_to(f"/proc/self/root{root}/sub")

    with pytest.raises(RefusalError):
        Roots([str(root)]).locate("sub/x")
    with namespace_with_mount(root) as other:
        (root / "up").symlink_to(f"{other}{root}/sub")
        (root / "sub").unlink()
        (root / "sub").symlink_to(f"{other}{root}/sub")
        with pytest.raises(RefusalError):
            Roots([str(root)]).locate("sub/secret")


@given(
    parts=st.lists(
        st.sampled_from(["in", "up", "file", "loop", "missing", "gone", "deep", "..", "."]), max_size=6
    )
)
def test_a_path_leads_where_the_kernel_leads(
    parts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """finding S14: our own resolution of links and `os.path.realpath` agree where that one ends."""
    top = tmp_path_factory.getbasetemp() / "resolved"
    if not top.exists():
        (top / "in" / "deep").mkdir(parents=True)
        (top / "file").write_text("x")
        for name, target in (("up", ".."), ("loop", "loop"), ("gone", "missing/x"), ("file", "../file")):
            (top / "in" / name).symlink_to(target)
    path = "/".join([str(top.resolve()), *parts])
    try:
        expected: str | int | None = os.path.realpath(path, strict=True)
    except OSError as error:
        expected = error.errno
    try:
        found: str | int | None = roots._real(path)
    except OSError as error:
        found = error.errno

    assert found == expected
