"""
Names of the lock's files and variables (REQ-LOCK-001a). No imports: policies and hooks ask on every call.

Everything starts with `.lock`, so that one look at a folder shows what belongs together, and a dot
keeps it out of default globs and searches (K-GHOST-1).
"""

from __future__ import annotations

LOCK_NAME = ".lock"
LEDGER_NAME = ".lock-ledger.jsonl"
BID_PREFIX = ".lock.take."
STAGED_PREFIX = ".lock.new."
SET_ASIDE_PREFIX = ".lock.aside."
SCRATCH_PREFIX = ".noclobber-doctor-"
"""Folders in which `doctor` tries locks. What is in them concerns nobody else."""

ENVIRONMENT_ID, ENVIRONMENT_FOLDER = "NOCLOBBER_LOCK_ID", "NOCLOBBER_LOCK_FOLDER"
"""How `noclobber lock run` tells a command which lock it works under."""
ENVIRONMENT_TOKEN = "NOCLOBBER_LOCK_TOKEN"  # noqa: S105 - a number, not a secret
"""The lock's fencing token, for the same command. Only with a coordinator."""

GIT_PATTERNS = (LOCK_NAME, LOCK_NAME + ".*", LEDGER_NAME + "*")
"""What a repository is told to ignore when a workspace is set up."""


def is_lock_file(path: str) -> bool:
    """
    True if a path names a lock file or a lock's record: agents may neither read nor write it
    (REQ-LOCK-010). Case is folded, because on APFS `.LOCK` opens `.lock`.
    """
    name = path.rstrip("/").rpartition("/")[2].casefold()
    return name == LOCK_NAME or name.startswith((BID_PREFIX, STAGED_PREFIX, SET_ASIDE_PREFIX, LEDGER_NAME))
