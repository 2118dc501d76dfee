"""
The commands of `torture.shell`: what agents do to a project with their shell, and where it must show.

Each is a text with `{token}` in it. `places` says where a landed token must be found, and how often: once in
each, or in none of them.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

FILES = ("a.txt", "b.txt", "sub/c.txt")
TRACKED = "tracked.txt"
KINDS_FOLDER = "kinds"
PYTHON = "import sys; n,t=sys.argv[1:]; d=open(n).read(); open(n,'w').write(d+t+chr(10))"
NEXT = f"{sys.executable} -S -E {os.path.join(os.path.dirname(os.path.abspath(__file__)), 'next_version.py')}"

# Read, modify and write one file that agents and appending outsiders share.
ONE_FILE = {
    "append": "echo {token} >> {file}",
    "sed": "sed -i '$a {token}' {file}",
    "awk": "awk '{{print}} END {{print \"{token}\"}}' {file} > {file}.{token} && mv {file}.{token} {file}",
    "heredoc": "cat > {file}.{token} <<EOF\n$(cat {file})\n{token}\nEOF\n"
    "cp {file}.{token} {file}; rm {file}.{token}",
    "python": f'python3 -S -c "{PYTHON}" {{file}} {{token}}',
    "tee": "{{ cat {file}; echo {token}; }} | tac | tac | tee {file}.{token} > /dev/null;"
    " mv {file}.{token} {file}",
}

# The same for a file that one outsider of each kind saves. `{next}` prints the next version.
VERSIONED = {
    "mv": "{next} > {file}.{token} && mv {file}.{token} {file}",
    "in place": 'V=$({next}; echo x$?); case $V in *x0) printf %s "${{V%x0}}" > {file};; *) exit 9;; esac',
    "tee": "{next} > {file}.{token} && tee {file} < {file}.{token} > /dev/null && rm {file}.{token}",
    "dd": "{next} > {file}.{token} && dd if={file}.{token} of={file} status=none && rm {file}.{token}",
    "remove": "{next} > {file}.{token} && rm {file} && cp {file}.{token} {file} && rm {file}.{token}",
    "sed": "{next} > {file}.{token} && sed -i -e 'r {file}.{token}' -e d {file}"
    " && cp {file}.{token} {file} && rm {file}.{token}",
}

SEVERAL = {
    "several": "echo {token} >> left.txt; sed -i '$a {token}' sub/right.txt; mkdir -p boxes;"
    " mkdir boxes/{token}; echo {token} > boxes/{token}/in-it",
    # Neither is there for a moment while another command lands: then nothing is to land (`GIT_OR_NOTHING`).
    "folders": "{{ if [ -d here ]; then mv -T here there && F=there; else mv -T there here && F=here; fi"
    " && [ -f $F/f ] && echo {token} >> $F/f; }} || kill -9 $$",
}

SIDE = (
    "git checkout -q -b side-{token} {base} && mkdir -p merged && echo {token} > merged/{token}"
    " && git add merged/{token} && git commit -qm {token}"
)
GIT = {
    "commit": "echo {token} >> tracked.txt && git commit -qam {token}",
    "checkout": "git checkout -q -b side-{token} && echo {token} >> tracked.txt && git commit -qam {token}"
    " && git checkout -q main && git merge -q --ff-only side-{token} && git branch -qD side-{token}",
    "stash": "echo {token} >> tracked.txt && git stash -q && git stash pop -q && git commit -qam {token}",
    "reset": "echo {token} >> tracked.txt && git commit -qam wrong && git reset -q --soft HEAD~1"
    " && git commit -qm {token}",
    "restore": "echo wrong >> tracked.txt && git restore tracked.txt && echo {token} >> tracked.txt"
    " && git commit -qam {token}",
    "merge": SIDE.replace("{base}", "HEAD~1") + " && git checkout -q main"
    " && git merge -q --no-edit --no-ff side-{token} && git branch -qD side-{token}",
    "rebase": SIDE.replace("{base}", "HEAD~1") + " && git rebase -q main && git checkout -q main"
    " && git merge -q --ff-only side-{token} && git branch -qD side-{token}",
    "cherry-pick": SIDE.replace("{base}", "HEAD~1") + " && git checkout -q main"
    " && git cherry-pick side-{token} > /dev/null && git branch -qD side-{token}",
    "mv": "mkdir -p merged && echo {token} > made-{token} && git add made-{token} && git commit -qm made"
    " && git mv made-{token} merged/{token} && git commit -q --amend -m {token}",
    "gc": "git pack-refs --all && git repack -q -d && echo {token} >> tracked.txt && git commit -qam {token}",
}
# One that fails half-way lands half of its work, as it does without us. Ended by a signal, it is refused.
GIT_OR_NOTHING = "{{ {text}; }} || kill -9 $$"
IN_A_FILE_OF_ITS_OWN = ("merge", "rebase", "cherry-pick", "mv")


class Done(NamedTuple):
    """One command, and how it ended: `landed`, `refused`, `failed` or `killed`."""

    kind: str
    token: str
    file: str
    how: str


class Tree:
    """A project when everything is over: where is which token?"""

    def __init__(self, root: Path, history: Counter[str], committed: Counter[str]) -> None:
        self.root, self.history, self._committed = root, history, committed
        names = (*FILES, "left.txt", "sub/right.txt", TRACKED, "person.txt")
        self._lines = {name: Counter((root / name).read_text().split()) for name in names}
        here = root / "here/f" if (root / "here").exists() else root / "there/f"
        self._lines["folder"] = Counter(here.read_text().split())

    def found(self, done: Done) -> list[int]:
        """Return how often a token is in each of the places where it should be."""
        kind, _, way = done.kind.partition(" ")
        token = done.token
        if kind == "git":
            if way in IN_A_FILE_OF_ITS_OWN:
                return [int((self.root / "merged" / token).exists()), self.history[token]]
            return [self._lines[TRACKED][token], self.history[token]]
        if kind == "person":
            return [self._lines["person.txt"][token], self._committed[token]]
        if kind == "several":
            boxed = (self.root / "boxes" / token / "in-it").exists()
            return [self._lines["left.txt"][token], self._lines["sub/right.txt"][token], int(boxed)]
        return [self._lines["folder" if kind == "folders" else done.file][token]]
