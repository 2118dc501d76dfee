"""
The guarded shell against the same commands run plainly.

`noclobber run -- true` and one `sed -i`, by the milliseconds that they add to `sh -c`; then commands that
look at many files, and commands that change many. Each pair is run in turns, on one folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import Row, in_turns, spelled
from noclobber.shell.namespace import UnavailableError, library

ROUNDS = 21
FEW_ROUNDS = 7
MANY_FILES = 20_000
CHANGED_FILES = 1_000
ADDED_MS_TRUE, ADDED_MS_SED = 20.0, 30.0
MOST_LOOKING, MOST_CHANGING = 3.0, 2.5

CREATE = f"mkdir new && cd new && for i in $(seq {CHANGED_FILES}); do echo $i > f$i; done"
CHANGE = "for f in old/*; do echo changed > $f; done"
REMOVE = "rm -r gone"


def rows() -> Iterator[Row]:
    """Every figure of the guarded shell."""
    try:
        library()
    except UnavailableError:
        return
    with tempfile.TemporaryDirectory(prefix="noclobber-bench-") as folder:
        Path(folder, "noclobber").write_text(SCRIPT)
        root = Path(folder, "project")
        root.mkdir()
        yield _added(root, "`noclobber run -- true`", "true", ADDED_MS_TRUE)
        (root / "plan.md").write_text("one\n")
        yield _added(
            root, "`sed -i` of one file", "sed -i s/$/x/ plan.md", ADDED_MS_SED
        )  # Changes it each time.
        yield from _looking(Path(folder, "many"))
        yield _changing(Path(folder, "changed"))


SCRIPT = "import sys\nfrom noclobber.cli import main\nsys.exit(main())\n"
"""What an installer writes into bin/."""


def _run(root: Path, text: str, *, guarded: bool) -> None:
    words = [sys.executable, str(root.parent / "noclobber"), "run", "--"] if guarded else []
    # Compiled, as an installed package is, and compiled elsewhere: a bench leaves no files in the source.
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": f"{root.parent}/compiled"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run(
        [*words, "sh", "-c", text], cwd=root, env=environment, stdout=subprocess.DEVNULL, check=True
    )


def _added(root: Path, what: str, text: str, bar_ms: float) -> Row:
    _run(root, text, guarded=True)  # Makes the state folder, once.
    ours_s, peer_s, _ = in_turns(
        lambda: _run(root, text, guarded=True), lambda: _run(root, text, guarded=False), rounds=ROUNDS
    )
    added_ms = (ours_s - peer_s) * 1000
    return Row(
        what=f"{what}: added ms",
        against=f"`sh -c`, {spelled(peer_s)}",
        ratio=added_ms,
        bar=f"<= {bar_ms:g} ms",
        ok=added_ms <= bar_ms,
        detail=spelled(ours_s),
    )


def _looking(root: Path) -> Iterator[Row]:
    for number in range(MANY_FILES):
        path = root / f"d{number % 200}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n")
    git = "git init -q . && git config gc.auto 0 && git config user.name a && git config user.email a@b"
    git += " && git add . && git commit -qm a"
    subprocess.run(["sh", "-c", git], cwd=root, check=True)
    for what, text in (("git status", "git status --porcelain"), ("grep -r", "grep -r needle . ; true")):
        _run(root, text, guarded=True)
        ours_s, peer_s, ratio = in_turns(
            lambda text=text: _run(root, text, guarded=True),  # type: ignore[misc]
            lambda text=text: _run(root, text, guarded=False),  # type: ignore[misc]
            rounds=FEW_ROUNDS,
        )
        yield Row(
            what=f"`{what}` in {MANY_FILES} files",
            against=f"plainly, {spelled(peer_s)}",
            ratio=ratio,
            bar=f"<= {MOST_LOOKING:g} x",
            ok=ratio <= MOST_LOOKING,
            detail=spelled(ours_s),
        )


def _changing(root: Path) -> Row:
    """Create, change and remove a thousand files; making the folder anew for each round is not counted."""

    def prepare() -> None:
        shutil.rmtree(root / "new", ignore_errors=True)
        for name in ("old", "gone"):
            (root / name).mkdir(parents=True, exist_ok=True)
            for number in range(CHANGED_FILES):
                (root / name / f"f{number}").write_text(f"{number}\n")
        os.sync()

    prepare()
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(FEW_ROUNDS):
        for guarded in (True, False):
            prepare()
            begun_s = time.perf_counter()
            for text in (CREATE, CHANGE, REMOVE):
                _run(root, text, guarded=guarded)
            times[guarded].append(time.perf_counter() - begun_s)
    ours_s, peer_s = (sorted(times[guarded])[FEW_ROUNDS // 2] for guarded in (True, False))
    ratio = ours_s / peer_s
    return Row(
        what=f"{CHANGED_FILES} files created, changed, removed",
        against=f"plainly, {spelled(peer_s)}",
        ratio=ratio,
        bar=f"<= {MOST_CHANGING:g} x",
        ok=ratio <= MOST_CHANGING,
        detail=spelled(ours_s),
    )
