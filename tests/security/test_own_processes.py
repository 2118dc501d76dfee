"""Processes that we start import nothing from the folder they are called in (finding S22)."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import noclobber
from tests.rigs.commands import run

PACKAGE = Path(noclobber.__file__).parent
SHADOWED = (
    "json",
    "signal",
    "subprocess",
    "argparse",
    "tempfile",
    "calendar",
    "shutil",
    "socket",
    "noclobber",
)


@pytest.fixture
def hostile(root: Path, tmp_path: Path) -> Path:
    """A clone with modules that are called like Python's own, and like ours."""
    for name in SHADOWED:
        text = (
            f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r} + chr(10))\nraise ImportError('theirs')\n"
        )
        (root / f"{name}.py").write_text(text)
    return root


@pytest.mark.parametrize("words", [("doctor",), ("demo",), ("status",), ("run", "--", "true")], ids=" ".join)
@pytest.mark.parametrize("start", ["by its path", "by -m"])
def test_no_command_imports_from_the_folder_it_is_called_in(
    hostile: Path, tmp_path: Path, words: tuple[str, ...], start: str
) -> None:
    """finding S22: `doctor` ran the folder's `json.py`."""
    begin = ["-I", f"{PACKAGE}/__main__.py"] if start == "by its path" else ["-m", "noclobber"]
    if start == "by -m":
        (hostile / "noclobber.py").unlink()  # Python itself takes that one; `-m` means it.
    subprocess.run(
        [sys.executable, *begin, *words],
        cwd=hostile,
        env={**os.environ, "HOME": str(tmp_path), "NO_COLOR": "1"},
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()


def test_doctor_still_finds_its_own_package(hostile: Path) -> None:
    """finding S22: its second process contends for a lock and dies with one, as before."""
    (hostile / "noclobber.py").unlink()
    done = run("doctor", ".", cwd=hostile)

    assert "second process refused" in done.out


def test_every_python_that_we_start_is_isolated() -> None:
    """finding S22: a child without `-I` takes modules from the folder that it is started in."""
    wrong = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.List) and node.elts and "sys.executable" in ast.unparse(node.elts[0])
        if [ast.unparse(each) for each in node.elts[1:2]] != ["'-I'"]
    ]
    assert wrong == []
