"""What counts as a change of a file: its attributes and names, and holes stay holes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.shell.test_process import is_available, project, run_with_an_outsider, shell

__all__ = ["project"]
pytestmark = pytest.mark.skipif(not is_available(), reason="no namespaces here")


def set_attribute(name: str, file: str = "plan.md") -> str:
    return f"{sys.executable} -S -c \"import os; os.setxattr('{file}', 'user.{name}', b'x')\""


def test_attributes_land_with_a_file_and_alone(project: Path) -> None:
    """N-shell: a command that changes an attribute and no byte has changed the file."""
    plan = project / "plan.md"
    os.setxattr(plan, "user.before", b"v")
    assert shell(project, f"echo two >> plan.md; {set_attribute('one')}").returncode == 0
    assert (sorted(os.listxattr(plan)), plan.read_text()) == (["user.before", "user.one"], "one\ntwo\n")
    done = shell(project, set_attribute("alone"))
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(os.listxattr(plan)) == ["user.alone", "user.before", "user.one"]
    assert plan.read_text() == "one\ntwo\n"
    refused = run_with_an_outsider(project, set_attribute("late"), "echo theirs >> plan.md")
    assert refused.returncode == 75
    assert "user.late" not in os.listxattr(plan)


def test_new_names_of_one_file_stay_names_of_one_file(project: Path) -> None:
    """N-shell: a second name for a file that was there is a copy of it; of a changed one, too."""
    done = shell(project, "echo new > a; ln a b; ln plan.md second.md")
    assert (done.returncode, done.stderr) == (0, "")
    assert os.path.samefile(project / "a", project / "b")
    assert (project / "second.md").read_text() == "one\n"
    done = shell(project, "echo two >> plan.md; chmod 600 plan.md; ln plan.md third.md")
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("plan.md", "third.md"):
        assert (project / name).read_text() == "one\ntwo\n"
        assert (project / name).stat().st_mode & 0o777 == 0o600


def test_a_written_name_of_a_linked_file_is_a_file_of_its_own(project: Path) -> None:
    """N-shell: as an editor's save; the other name keeps the old bytes (docs/shell.md)."""
    os.link(project / "plan.md", project / "twin.md")
    assert shell(project, "echo two >> plan.md").returncode == 0
    assert (project / "plan.md").read_text() == "one\ntwo\n"
    assert (project / "twin.md").read_text() == "one\n"


def test_holes_stay_holes(project: Path) -> None:
    """N-shell: one byte in a large sparse file costs no space for the rest of it."""
    with open(project / "sparse", "wb") as file:
        file.truncate(200 << 20)
    write = "printf y | dd of=sparse bs=1 seek=150000000 conv=notrunc status=none"
    assert shell(project, f"{write}; truncate -s 100M new").returncode == 0
    for name, size in (("sparse", 200 << 20), ("new", 100 << 20)):
        status = (project / name).stat()
        assert status.st_size == size
        assert status.st_blocks * 512 < 8 << 20
