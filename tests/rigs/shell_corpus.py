"""
Shell commands as coding agents send them, with what is in them, and a folder to run them in.

`tests/data/commands/corpus.txt` has one block a command:

    %% run                    or `look`: it needs what a test does not have (a network, a user's right)
    sed -i 's/one/1/' a.md
    %= runs sed               the programs, in order; `?` for one that is not known
    %= writes edit a.md       what it is certain to write, if anything
    %= reads a.md             what it shows, if anything
    %= is read-only           or `writes`: it writes or may write
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

from noclobber.errors import BadRequestError
from noclobber.shell import recognise
from noclobber.shell.read_only import is_read_only
from noclobber.shell.syntax import parse
from noclobber.shell.targets import targets

CORPUS = Path(__file__).parents[1] / "data" / "commands" / "corpus.txt"


class Known(NamedTuple):
    """A command, whether it may be run in a test, and what is known of it."""

    command: str
    may_run: bool
    facts: list[str]


def corpus() -> list[Known]:
    """Return every command of the corpus."""
    found = []
    for block in CORPUS.read_text().rstrip("\n").split("\n%% ")[1:]:
        kind, _, rest = block.partition("\n")
        lines = rest.split("\n")
        facts = [line[3:] for line in lines if line.startswith("%= ")]
        command = "\n".join(line for line in lines[: len(lines) if not facts else -len(facts)])
        found.append(Known(command, kind == "run", facts))
    return found


def facts_of(command: str) -> list[str]:
    """Return what the parser and those who use it say about a command."""
    script = parse(command)
    names = [one.name or "?" for one in script.commands if one.words]
    facts = [f"runs {', '.join(names)}" if names else "runs nothing"]
    facts += [] if script.is_whole else ["is not told for certain"]
    facts += [f"writes {action.kind} {action.path}" for action in targets(command)]
    try:
        seen = recognise.actions(command, "post")
        locks = recognise.actions(command, "pre")
    except BadRequestError:
        return [*facts, "is refused"]
    facts += [f"{'removes' if one.is_removal else one.kind + 's'} {one.path}" for one in seen]
    facts += [f"is asked about {one.path}" for one in locks]
    return [*facts, "is read-only" if is_read_only(command) else "is writing"]


def make_scratch(folder: Path) -> None:
    """Fill a folder with what the commands of the corpus name: a small repository."""
    files = {
        "a.md": "one\ntwo\nthree\n",
        "b.md": "uno\ndos\n",
        "c.txt": "x\n",
        "a b.md": "one\n",
        "sub/a.md": "one\nsub\n",
        "sub/b.md": "sub one\n",
        "docs/x.md": "docs\n",
        "src/app.py": "def one():\n    return 1\n",
        "src/[id].tsx": "page\n",
        "data.json": '{"a": 1}\n',
        "data.csv": "a,b\n1,2\n",
        "list.txt": "a.md\nb.md\n",
        "fix.py": "open('fixed.txt', 'w').write('x')\n",
        "fix.sed": "s/one/1/\n",
        "script.sh": "#!/bin/sh\necho x > script.out\n",
        "Makefile": "out.txt:\n\techo x > out.txt\n",
        "change.patch": "--- a.md\n+++ a.md\n@@ -1,3 +1,3 @@\n-one\n+1\n two\n three\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "empty").mkdir()
    (folder / "script.sh").chmod(0o755)
    subprocess.run(["tar", "czf", "archive.tgz", "docs"], cwd=folder, check=True)
    for words in (["init", "-q", "--template="], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=folder, check=True, env=environment(folder))
    for name in ("a.md", "sub/a.md"):  # Work that is not committed.
        with open(folder / name, "a") as file:
            file.write("more\n")
    for name in files:
        os.utime(folder / name, (1_000_000_000, 1_000_000_000))


def environment(folder: Path) -> dict[str, str]:
    """Return the variables that a command runs with."""
    who = {f"GIT_{role}_{what}": "x" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "USER": "agent",
        "TMPDIR": "/tmp",
        "GIT_CONFIG_NOSYSTEM": "1",
        **who,
    }


def state_of(folder: Path) -> dict[str, object]:
    """Return every file below a folder with what changes when it is written; git's own folder is left out."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.partition("/")[0] != ".git" and not path.is_dir():
            status = path.lstat()
            text = path.read_bytes() if path.is_file() else os.readlink(path)
            found[name] = (status.st_ino, status.st_mtime_ns, status.st_mode, text)
    return found


def changed_by(command: str, folder: Path) -> set[str]:
    """Run a command with bash in a scratch folder; return the files that it wrote, made or removed."""
    before = state_of(folder)
    subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    after = state_of(folder)
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
