"""
The one way to ask git something: nothing that a repository can name is run, and nobody is asked.

A clone's configuration names programs for many occasions: a monitor of the work tree, filters for content,
hooks, programs that fetch what is missing, programs that sign. Whoever merely looks at a folder must not run
them. Settings in a command come after a repository's own, whichever file they were included from, so each is
overruled there.

Filters have names, so they are asked for first (that runs nothing) and overruled one by one: also the user's
own, because git-lfs for one runs what the repository says. Text is converted by git itself as ever, and a
file with a filter looks changed, if anything. A submodule is compared by its commit only: git would start
another git inside of it, without any of these settings.

Only a commit that somebody asked for obeys the repository (`repository.Repository.committing`).
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PATIENCE_S = 600

_RUNS_NOTHING = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.pager=cat"),
    *(
        "-c",
        "core.sshCommand=false",
        "-c",
        "core.gitProxy=",
        "-c",
        "core.askPass=",
        "-c",
        "credential.helper=",
    ),
    *("-c", "gpg.program=false", "-c", "gpg.ssh.program=false", "-c", "gpg.x509.program=false"),
    *("-c", "gpg.ssh.defaultKeyCommand=", "-c", "log.showSignature=false"),
    *("-c", "core.alternateRefsCommand=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false"),
    # A folder of a clone that looks like a repository is none, unless it is named as one.
    *("-c", "safe.bareRepository=explicit"),
)
_ASKS_NOBODY = {
    "GIT_ALLOW_PROTOCOL": "",  # Not `protocol.allow`: a repository's `protocol.ext.allow` overrules that.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "",
    "GIT_PAGER": "cat",
}
_FILTERS = (
    "config",
    "--null",
    "--name-only",
    "--get-regexp",
    r"^filter\..*\.(clean|smudge|process|required)$",
)
_CONVERTS = ("diff-index", "hash-object")
_SUBMODULES = {"diff-index": ("--ignore-submodules=dirty",)}

# These would lead git elsewhere than to the folder that is meant.
_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE")


class GitReader:
    """Asks git about the repository around a folder. It is for a short time: filters are looked up once."""

    def __init__(self, folder: str, *options: str, variables: Mapping[str, str] = os.environ) -> None:
        self._folder, self._options, self._variables = folder, options, variables
        self._without_filters: dict[str, str] | None = None

    def ended(
        self,
        *words: str,
        stdin: bytes = b"",
        more: Mapping[str, str] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a git command, and return it when it has ended. `more` goes into its environment."""
        variables = {**self._variables, **_ASKS_NOBODY, **(more or {})}
        if words[0] in _CONVERTS:
            variables |= self._filters_off()
        words = (words[0], *_SUBMODULES.get(words[0], ()), *words[1:])
        return self._run(words, variables, stdin, patience_s)

    def _filters_off(self) -> dict[str, str]:
        """Return settings for the environment: a name may hold what would end a key on a command line."""
        if self._without_filters is None:
            named = self._run(_FILTERS, {**self._variables, **_ASKS_NOBODY}, b"", PATIENCE_S).stdout
            keys = sorted({*named.split(b"\0")} - {b""})
            given = self._variables.get("GIT_CONFIG_COUNT", "")
            begin = int(given) if given.isdecimal() else 0
            off = {"GIT_CONFIG_COUNT": str(begin + len(keys))}
            for number, key in enumerate(map(os.fsdecode, keys), begin):
                off[f"GIT_CONFIG_KEY_{number}"] = key
                off[f"GIT_CONFIG_VALUE_{number}"] = "false" if key.endswith("required") else ""
            self._without_filters = off
        return self._without_filters

    def _run(
        self, words: tuple[str, ...], variables: Mapping[str, str], stdin: bytes, patience_s: float
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["git", *_RUNS_NOTHING, *self._options, *words],
            cwd=self._folder,
            env=variables,
            input=stdin,
            capture_output=True,
            timeout=patience_s,
            check=False,
        )


def quiet_git(
    repository: str, *words: str, stdin: bytes = b"", index: str | None = None, patience_s: float = 10
) -> bytes | None:
    """Ask git about a repository by its own folder; return what it printed, None if it fails."""
    about = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    if index is not None:
        about["GIT_INDEX_FILE"] = index
    reader = GitReader(repository, f"--git-dir={repository}", variables=about)
    try:
        done = reader.ended(*words, stdin=stdin, patience_s=patience_s)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None
