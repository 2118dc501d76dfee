"""Where the real hosts are, and a project to run them in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


class Project(NamedTuple):
    """A folder with a file in it, a home that nobody else uses, and a runtime folder."""

    root: Path
    home: Path
    runtime: Path

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment for a host: nothing of the developer's own, and no way out but loopback."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "TMPDIR": str(self.home),
            "LANG": "C.UTF-8",
            # Whatever is not loopback goes to a port where nobody listens.
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "HTTP_PROXY": "http://127.0.0.1:9",
            "NO_PROXY": "127.0.0.1,localhost",
            **more,
        }

    def install(self, host: str, *words: str) -> None:
        """Run `noclobber install`."""
        subprocess.run(
            [sys.executable, "-m", "noclobber", "install", host, *words],
            cwd=self.root,
            env={**self.environment(), "PYTHONPATH": str(REPOSITORY / "src")},
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=60,
        )

    def ledger(self) -> list[dict[str, Any]]:
        """Return what is on record."""
        from noclobber import AgentTraceLedger

        path = self.root / ".noclobber" / "agent_trace.jsonl"
        if not path.exists():
            return []
        with AgentTraceLedger(path) as ledger:
            ledger.verify()
            return list(ledger.events())


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty project."""
    made = Project(tmp_path / "project", tmp_path / "home", tmp_path / "runtime")
    for folder in made:
        folder.mkdir(mode=0o700)
    return made


@pytest.fixture(scope="session")
def claude_binary() -> str:
    """The real Claude Code, from the PyPI package that bundles it."""
    given = os.environ.get("NOCLOBBER_E2E_CLAUDE")
    if given:
        return given
    found = find_spec("claude_agent_sdk")  # Not imported: all that is wanted is the program inside.
    if found is None or found.origin is None:
        pytest.skip("claude-agent-sdk is not installed (pip install claude-agent-sdk)")
    binary = Path(found.origin).parent / "_bundled" / "claude"
    if not binary.exists():
        pytest.skip("this build of claude-agent-sdk bundles no Claude Code")
    return str(binary)


@pytest.fixture
def run_claude(claude_binary: str, project: Project) -> Callable[..., subprocess.Popen[str]]:
    """Start Claude Code with a prompt against a model endpoint."""

    def run(url: str, prompt: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                claude_binary,
                *("-p", prompt),
                *("--permission-mode", "acceptEdits"),
                *("--output-format", "json"),
            ],
            cwd=project.root,
            env=project.environment(
                ANTHROPIC_BASE_URL=url,
                ANTHROPIC_API_KEY="none",
                CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
                DISABLE_AUTOUPDATER="1",
                DISABLE_TELEMETRY="1",
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return run


@pytest.fixture(scope="session")
def codex_binary() -> str:
    """The real Codex, from npm, kept in a cache folder below the virtual environment."""
    given = os.environ.get("NOCLOBBER_E2E_CODEX")
    if given:
        return given
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("npm and node are needed to install Codex")
    cache = Path(sys.prefix) / "e2e-cache" / "codex"
    binary = cache / "node_modules" / ".bin" / "codex"
    if not binary.exists():
        cache.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [npm, "install", "--no-audit", "--no-fund", "--prefix", str(cache), "@openai/codex@0.166.0"],
            capture_output=True,
            text=True,
            timeout=200,
        )
        if done.returncode != 0:
            pytest.skip(f"npm could not install Codex: {done.stderr.strip()[-200:]}")
    return str(binary)
