"""
The command line's start against Python's own.

`noclobber --help` by both ways of starting it: the installed script, and `python -m noclobber`. The peer
is the same interpreter doing nothing at all, so the ratio is what our start adds. The script is made here
as `pip` makes it, and runs with the interpreter and the package that the bench runs with.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import noclobber
from bench import Row, in_turns, spelled

ROUNDS = 41
BAR = 3.0

# What pip writes into bin/, the import of `re` included: installers differ, and this is the slowest in use.
SCRIPT = """#!{python}
import re
import sys
from noclobber.cli import main
if __name__ == "__main__":
    sys.argv[0] = re.sub(r"(-script\\.pyw|\\.exe)?$", "", sys.argv[0])
    sys.exit(main())
"""


def rows() -> Iterator[Row]:
    """Every figure of the command line."""
    with tempfile.TemporaryDirectory(prefix="noclobber-bench-") as folder:
        script = f"{folder}/noclobber"
        with open(script, "w") as file:
            file.write(SCRIPT.format(python=sys.executable))
        yield _row("`noclobber --help`, the script", [sys.executable, script, "--help"], folder)
        yield _row("`python -m noclobber --help`", [sys.executable, "-m", "noclobber", "--help"], folder)


def _row(what: str, command: list[str], folder: str) -> Row:
    home = os.path.dirname(os.path.dirname(os.path.abspath(noclobber.__file__)))
    # Compiled, as an installed package is, and compiled elsewhere: a bench leaves no files in the source.
    environment = {**os.environ, "PYTHONPATH": home, "PYTHONPYCACHEPREFIX": folder}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def run(words: list[str]) -> None:
        subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, check=True)

    ours_s, peer_s, ratio = in_turns(
        lambda: run(command), lambda: run([sys.executable, "-c", "pass"]), rounds=ROUNDS
    )
    return Row(
        what=what,
        against="`python -c pass`",
        ratio=ratio,
        bar=f"<= {BAR:g} x",
        ok=ratio <= BAR,
        detail=f"{spelled(ours_s)} against {spelled(peer_s)}",
    )
