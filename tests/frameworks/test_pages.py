"""The page of a framework: its program runs as it is, offline, and prints what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks.drivers import FRAMEWORKS

PROJECT = Path(__file__).parents[2]
PAGES = PROJECT / "docs" / "frameworks"
PROGRAM = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _program(name: str) -> tuple[str, str]:
    """A page's program and what it prints."""
    [(program, printed)] = PROGRAM.findall((PAGES / f"{name}.md").read_text())
    return program, printed


@pytest.mark.parametrize("name", [name for name in FRAMEWORKS if (PAGES / f"{name}.md").exists()])
def test_a_page_has_a_program_and_the_line_that_changes(name: str) -> None:
    """N-frameworks: whoever opens the page sees what to change, and can run it."""
    program, printed = _program(name)
    compile(program, f"{name}.md", "exec")
    assert printed
    assert "```diff\n-" in (PAGES / f"{name}.md").read_text()
    assert f"noclobber[{name}]" in (PAGES / f"{name}.md").read_text()


def test_the_index_has_every_page_and_extra() -> None:
    """N-frameworks: whoever looks for their framework finds it, and what to install."""
    index = (PAGES / "README.md").read_text()
    for page in PAGES.glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index
    for name in FRAMEWORKS:
        assert name == "tools" or f"`noclobber[{name}]`" in index


def test_the_program_on_the_page_prints_what_the_page_says(framework: str, tmp_path: Path) -> None:
    """N-frameworks: with the real framework, in a process of its own."""
    if not (PAGES / f"{framework}.md").exists():
        pytest.skip("it has no page of its own")
    program, printed = _program(framework)
    file = tmp_path / "program.py"
    file.write_text(program)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(file)],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(PROJECT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == printed
