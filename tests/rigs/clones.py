"""A git clone that several agents share: a repository in a folder, plain git commands, and writes of agents."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from noclobber import Workspace

IDENTITY = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
}


class Clone:
    """A repository with one commit of some files, or with none."""

    def __init__(self, root: Path, files: dict[str, bytes] | None = None) -> None:
        self.root = root
        self.git("init", "--quiet", "--initial-branch=main")
        for name, content in (files or {}).items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        if files:
            self.git("add", "-A")
            self.git("commit", "--quiet", "-m", "first")

    def git(self, *words: str) -> str:
        """Run git; return what it printed."""
        done = subprocess.run(
            ["git", *words], cwd=self.root, env={**os.environ, **IDENTITY}, capture_output=True, check=False
        )
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout.decode()

    def write(self, agent: str, name: str, content: bytes | None, session: str | None = None) -> None:
        """A guarded write of an agent, after it has read the file; None: it deletes it."""
        with (
            Workspace(self.root) as workspace,
            workspace.turn(agent_id=agent, session_id=session) as turn,
        ):
            if (self.root / name).exists():
                turn.read_file(name)
            if content is None:
                turn.delete_file(name)
            else:
                turn.write_file(name, content)

    def change(self, agent: str, name: str, old: bytes, new: bytes, session: str | None = None) -> None:
        """An agent replaces some text."""
        content = (self.root / name).read_bytes()
        assert content.count(old) == 1
        self.write(agent, name, content.replace(old, new), session)

    def shown(self, name: str, commit: str = "HEAD") -> bytes:
        """Return a file as it is in a commit."""
        return subprocess.run(
            ["git", "show", f"{commit}:{name}"], cwd=self.root, capture_output=True, check=True
        ).stdout

    def status(self) -> list[str]:
        """Return the lines of `git status`."""
        return self.git("status", "--porcelain", "--untracked-files=all").splitlines()

    def count(self) -> int:
        """Return how many commits there are."""
        return int(self.git("rev-list", "--count", "HEAD"))
