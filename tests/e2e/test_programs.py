"""Where hosts' programs come from, and what is said if they cannot be had."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import programs
from tests.e2e.drivers import DRIVERS
from tests.e2e.programs import MissingHostError


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine without Node, without npm, and with a pip that reaches nothing."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("NOCLOBBER_E2E_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    programs.find_node.cache_clear()
    yield tmp_path
    programs.find_node.cache_clear()


@pytest.mark.parametrize("host", ["codex", "gemini", "qwen"])
def test_without_node_the_remedy_is_named(host: str, bare: Path) -> None:
    """N-hosts: a skip says what is missing and what to install, and nothing is left half installed."""
    with pytest.raises(
        MissingHostError, match=r"Node \d+ or newer with npm is needed; there is none.*Install Node"
    ):
        DRIVERS[host].locate()


def test_a_node_that_is_too_old_is_not_used(bare: Path) -> None:
    """N-hosts: its version is named, too."""
    for name, says in (("node", "v18.1.0"), ("npm", "10.0.0")):
        program = bare / "bin" / name
        program.write_text(f"#!/bin/sh\necho {says}\n")
        program.chmod(0o755)
    with pytest.raises(MissingHostError, match="the one on PATH is 18"):
        DRIVERS["qwen"].locate()


def test_a_program_that_the_environment_names_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-hosts: for a host that is already installed."""
    monkeypatch.setenv("NOCLOBBER_E2E_CLAUDE_CODE", "/opt/claude")
    assert DRIVERS["claude-code"].locate().path == "/opt/claude"
