"""A project for a host to work in, a home that nobody else uses, and what is on record afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]


class Project(NamedTuple):
    """A folder, a home and a runtime folder."""

    root: Path
    home: Path
    runtime: Path

    @classmethod
    def below(cls, folder: Path) -> Project:
        """Make one."""
        made = cls(folder / "project", folder / "home", folder / "runtime")
        for one in made:
            one.mkdir(mode=0o700, parents=True)
        return made

    def file(self, name: str, content: str | bytes) -> Path:
        """Make a file in it."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def settle(self, path: Path, text: str) -> None:
        """Write a host's configuration, unless it is there: a session that is starting may be reading it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.read_text() == text:
            return
        beside = path.with_name(f"{path.name}.new")
        beside.write_text(text)
        beside.rename(path)

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

    def install(self, host: str, *words: str, python: str = sys.executable) -> None:
        """Run `noclobber install`."""
        self.noclobber("install", host, *words, python=python)

    def noclobber(self, *words: str, python: str = sys.executable) -> None:
        """Run our own command line."""
        subprocess.run(
            [python, "-m", "noclobber", *words],
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

    def record(self, path: Path) -> list[tuple[str, str]]:
        """Return what is on record about one file, line by line: what happened, and how it ended."""
        name = str(path.relative_to(self.root))
        return [
            (event["action_type"], event["result"]["status"])
            for event in self.ledger()
            if event["payload"].get("target_file") == name
        ]

    def kept(self) -> list[bytes]:
        """Return the versions that were kept because a write displaced them."""
        folder = self.root / ".noclobber" / "kept"
        return [path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()]
