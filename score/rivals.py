"""
Who else writes the file: another agent's tool, an editor, a formatter, git, a shell script.

Each makes one update, as the real one does it, and it can be seen afterwards whether the update is there.
`Counting` writes what the model will write, too: both add one to the same number, so both updates are equal.
`Nobody` writes nothing and `Touch` changes only the modification time: whoever refuses a write then refuses
it falsely.
"""

from __future__ import annotations

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

_ENVIRONMENT = {
    **os.environ,
    **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "a person"),
    **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "person@example.com"),
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


class Rival(ABC):
    """One rival, in one round."""

    name: ClassVar[str]
    makes_an_update: ClassVar[bool] = True

    def __init__(self, file: Path, number: int) -> None:
        self.file, self.line = file, f"{type(self).__name__.lower()}-{number}"

    def prepare(self) -> None:  # noqa: B027 - most need nothing
        """Before the model reads the file."""

    @abstractmethod
    def act(self) -> None:
        """Make the update."""

    def is_there(self) -> bool:
        """True if the update is in the file."""
        return self.line in self.file.read_text().splitlines()

    def wanted(self, text: str, own: str) -> str:
        """Return what the model makes of the text that it has read."""
        return f"{text}{own}\n"

    def is_lost(self, *, landed: bool) -> bool:
        """True if an update is missing, after the model's own landed or did not."""
        return self.makes_an_update and not self.is_there()


class Nobody(Rival):
    """No rival: a refusal is false."""

    name = "nobody"
    makes_an_update = False

    def act(self) -> None:
        """Do nothing."""

    def is_there(self) -> bool:
        """Nothing can be lost."""
        return True


class Touch(Nobody):
    """The same bytes, a newer time: `touch`, a checkout to and fro, a sync tool. A refusal is false."""

    name = "touch"

    def act(self) -> None:
        """Change the time only."""
        os.utime(self.file, None)


class Agent(Rival):
    """Another agent's tool: it reads the file, and writes all of it back with one more line."""

    name = "another agent"

    def act(self) -> None:
        """Read, and write all of it."""
        program = (
            "import sys; p = sys.argv[1]; t = open(p).read(); open(p, 'w').write(t + sys.argv[2] + '\\n')"
        )
        subprocess.run([sys.executable, "-c", program, str(self.file), self.line], check=True)


class Editor(Rival):
    """A person's editor: it writes a new file and renames it over the old one."""

    name = "an editor"

    def act(self) -> None:
        """Save."""
        beside = self.file.with_name(f".{self.file.name}.swp")
        beside.write_text(f"{self.file.read_text()}{self.line}\n")
        os.replace(beside, self.file)


class Formatter(Rival):
    """A formatter: it rewrites every line. Its update is there if no line has blanks at its end."""

    name = "a formatter"

    def prepare(self) -> None:
        """Leave something to format."""
        self.file.write_text("".join(f"{line}  \n" for line in self.file.read_text().splitlines()))

    def act(self) -> None:
        """Format."""
        self.file.write_text("".join(f"{line.rstrip()}\n" for line in self.file.read_text().splitlines()))

    def is_there(self) -> bool:
        """Look for blanks at the ends."""
        return all(line == line.rstrip() for line in self.file.read_text().splitlines())


class Git(Rival):
    """Somebody takes the file from another branch."""

    name = "git"

    def prepare(self) -> None:
        """Have a branch with one more line."""
        old = self.file.read_text()
        if not (self.file.parent / ".git").exists():
            self._git("init", "-q")
        self._git("add", "-f", self.file.name)
        self._git("commit", "-q", "--allow-empty", "-m", "before")
        self.file.write_text(f"{old}{self.line}\n")
        self._git("commit", "-q", "-m", self.line, self.file.name)
        self._git("branch", "-f", self.line)
        self._git("reset", "-q", "--soft", "HEAD~1")
        self.file.write_text(old)
        self._git("add", "-f", self.file.name)

    def act(self) -> None:
        """Take it."""
        self._git("checkout", "-q", self.line, "--", self.file.name)

    def _git(self, *words: str) -> None:
        subprocess.run(
            ["git", *words], cwd=self.file.parent, env=_ENVIRONMENT, check=True, capture_output=True
        )


class Script(Rival):
    """A shell script that appends."""

    name = "a shell script"

    def act(self) -> None:
        """Append."""
        subprocess.run(["sh", "-c", 'echo "$2" >> "$1"', "sh", str(self.file), self.line], check=True)


class Counting(Rival):
    """Another agent that adds one to the number that the model adds one to: both write the same."""

    name = "another that counts"

    def prepare(self) -> None:
        """Have a number to count from."""
        self.file.write_text(f"{self.file.read_text()}counted 0\n")

    def act(self) -> None:
        """Add one."""
        self.file.write_text(self.wanted(self.file.read_text(), ""))

    def is_there(self) -> bool:
        """Look whether anybody has counted."""
        return self._count(self.file.read_text()) > 0

    def wanted(self, text: str, own: str) -> str:
        """Count one more than was read."""
        count = self._count(text)
        return text.replace(f"counted {count}\n", f"counted {count + 1}\n")

    def is_lost(self, *, landed: bool) -> bool:
        """Each that landed has counted one."""
        return self._count(self.file.read_text()) < 1 + landed

    @staticmethod
    def _count(text: str) -> int:
        return int(text[text.rindex("counted ") :].split()[1])


RIVALS: tuple[type[Rival], ...] = (Agent, Counting, Editor, Formatter, Git, Script)
CONTROLS: tuple[type[Rival], ...] = (Nobody, Touch)
