"""
Find the bytes of a past version by its hash: among the versions that are kept, in commits' own files, in git.

Records hold hashes, never content. Wherever bytes are found, they are hashed again before they are used.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from noclobber.core.project import KEPT_FOLDER, SWAP_FOLDER, state_folder
from noclobber.disk import hashing
from noclobber.disk.versions import Versions
from noclobber.errors import ABSENT, DELETED
from noclobber.guard.git.reading import GitReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noclobber.guard.snapshot import TurnContext

GIT_COMMITS = 50
_GIT_PATIENCE_S = 10


def find_bytes(root: str, path: str, sha256: str) -> tuple[bytes | None, str | None]:
    """Return bytes with that hash, or that beginning of one, and where they were found; else None."""
    if not sha256:
        return None, None  # Every hash begins so.
    if sha256 in (ABSENT, DELETED):
        return b"", "there was no file"
    for source, content in _candidates(root, path, sha256):
        if hashing.of_bytes(content).startswith(sha256):
            return content, source
    return None, None


def seen_bytes(context: TurnContext, root: str, name: str, path: str, baseline: str | None) -> bytes | None:
    """Return what an agent saw of a file: from the turn's own memory, or wherever its bytes still are."""
    kept = context.baseline_bytes(name, path)
    if kept is not None and (baseline is None or hashing.of_bytes(kept) == baseline):
        return kept
    if baseline is None or not hashing.is_hash(baseline):
        return None
    return find_bytes(root, path, baseline)[0]


def find_kept(kept: Versions | None, root: str, path: str, sha256: str) -> bytes | None:
    """Return bytes with that hash from the versions, or from what is on its way there; without git."""
    found = kept.read(sha256) if kept is not None else None
    if found is None:
        found = find_displaced(root, path, sha256)
    if found is None and kept is not None:
        found = kept.read(sha256)  # It was put away between the two looks.
    return found


def find_displaced(root: str, path: str, sha256: str) -> bytes | None:
    """Return bytes with that hash that a commit has displaced and not yet put away."""
    for _, content in _from_store(root, path):
        if hashing.of_bytes(content) == sha256:
            return content
    return None


def _candidates(root: str, path: str, sha256: str) -> Iterator[tuple[str, bytes]]:
    """Where the bytes may be, the likeliest and cheapest place first."""
    yield from _from_versions(root, sha256)
    yield from _from_store(root, path)
    yield from _from_git(path)


def _from_versions(root: str, sha256: str) -> Iterator[tuple[str, bytes]]:
    try:
        versions = Versions(root, make=False)
    except OSError:
        return  # None are kept; or they are not ours, and `doctor` says so.
    try:
        for found in versions.find(sha256):
            content = versions.read(found)
            if content is not None:
                yield f"version {found[:12]}", content
    finally:
        versions.close()


def _from_store(root: str, path: str) -> Iterator[tuple[str, bytes]]:
    name = os.path.basename(path)
    for part in (KEPT_FOLDER, SWAP_FOLDER):
        folder = f"{state_folder(root)}/{part}"
        try:
            found = [
                entry for entry in os.listdir(folder) if name.startswith(entry.partition("~")[2] or "\0")
            ]
        except OSError:
            continue
        for entry in found:
            try:
                descriptor = os.open(f"{folder}/{entry}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                with open(descriptor, "rb") as file:
                    yield f"{folder}/{entry}", file.read()
            except OSError:
                continue


def _from_git(path: str) -> Iterator[tuple[str, bytes]]:
    folder, name = os.path.split(path)
    if not os.path.isdir(folder):
        return
    reader = GitReader(folder)
    words = ("rev-list", f"--max-count={GIT_COMMITS}", "HEAD", "--", f":(literal){name}")
    try:
        commits = reader.ended(*words, patience_s=_GIT_PATIENCE_S).stdout
        for commit in ("", *commits.decode("ascii", "replace").split()):
            found = reader.ended("cat-file", "blob", f"{commit}:./{name}", patience_s=_GIT_PATIENCE_S)
            if found.returncode == 0:
                yield (f"git commit {commit[:12]}" if commit else "git's index"), found.stdout
    except (OSError, subprocess.SubprocessError):
        return
