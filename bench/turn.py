"""
The snapshot of a turn: how quick a look-up is, what a hundred thousand files cost, and what an import does.

Memory is counted by `tracemalloc`, in a process of its own: every path, hash, entry and row, and the
64 bytes of each small file that are kept for diffs.
"""

from __future__ import annotations

import gc
import hashlib
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator

from bench import Row, in_turns, spelled
from noclobber.core.values import WHOLE
from noclobber.guard.snapshot import TurnContext

FILES = 100_000
LOOKUPS = 10_000


def rows() -> Iterator[Row]:
    """The rows of `make bench`."""
    yield from _lookups()
    yield from _large_turn()
    yield _import()


def _lookups() -> Iterator[Row]:
    root = "/home/somebody/projects/example"
    turn = TurnContext(root, turn_id="bench")
    for number in range(1_000):
        path = f"{root}/src/package/module_{number}.py"
        turn.observe(path, path, hashlib.sha256(b"%d" % number).hexdigest(), None, WHOLE)
    with tempfile.NamedTemporaryFile() as file:
        file.write(os.urandom(100 << 10))
        file.flush()

        def from_disk() -> None:
            with open(file.name, "rb") as opened:
                hashlib.file_digest(opened, "sha256").hexdigest()

        for spelling, path in (
            ("as it was returned", f"{root}/src/package/module_500.py"),
            ("relative", "src/package/module_500.py"),
        ):
            look_up = turn.get_initial_hash

            def many(path: str = path, look_up: object = look_up) -> None:
                for _ in range(LOOKUPS):
                    look_up(path)  # type: ignore[operator]

            ours, peer, _ = in_turns(many, from_disk, rounds=15)
            each = ours / LOOKUPS
            yield Row(
                f"get_initial_hash, path {spelling}",
                "hashing 100 KiB from disk",
                each / peer,
                "≤ 0.02 ×, ≤ 2 µs",
                each <= peer / 50 and each <= 2e-6,
                f"{spelled(each)} against {spelled(peer)}: {peer / each:,.0f} × faster",
            )


def fill(turn: TurnContext) -> None:
    """Read a hundred thousand small files, as far as the snapshot is concerned."""
    for number in range(FILES):
        content = b"%064d" % number
        # Joined here and not shared, as a real read's path is.
        path = "/".join((turn.root, "src", f"package_{number % 100}", f"module_{number}.py"))
        turn.observe(path, path, hashlib.sha256(content).hexdigest(), content, WHOLE)


def _large_turn() -> Iterator[Row]:
    code = "import bench.turn; bench.turn.measure()"
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([f"{here}/src", here])}
    answers = []
    for what in ("memory", "time"):
        done = subprocess.run(
            [sys.executable, "-c", code, what], env=environment, capture_output=True, text=True, check=True
        )
        answers.append(done.stdout.split())
    megabytes = int(answers[0][0]) / 1e6
    fill_s, reset_s = map(float, answers[1])
    yield Row(
        f"turn of {FILES:,} files, memory",
        "—",
        megabytes / 60,
        "≤ 60 MB",
        megabytes <= 60,
        f"{megabytes:.1f} MB, {megabytes * 1e6 / FILES:.0f} bytes a file",
    )
    yield Row(
        f"turn of {FILES:,} files, reset",
        "—",
        reset_s / 0.05,
        "≤ 50 ms",
        reset_s <= 0.05,
        f"{spelled(reset_s)}; filled at {spelled(fill_s / FILES)} a file",
    )


def measure() -> None:
    """In a process of its own: print what a large turn takes."""
    gc.collect()
    turn = TurnContext("/home/somebody/projects/example", turn_id="bench")
    if sys.argv[1] == "memory":
        tracemalloc.start()
        fill(turn)
        print(tracemalloc.get_traced_memory()[0])
        return
    best = []
    for _ in range(5):
        begun = time.perf_counter()
        fill(turn)
        filled = time.perf_counter()
        turn.clear()
        best.append((filled - begun, time.perf_counter() - filled))
    print(*map(min, zip(*best, strict=True)))


def _import() -> Row:
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    code = f"import sys; sys.path.insert(0, {here + '/src'!r})"

    def start(statement: str) -> None:
        subprocess.run([sys.executable, "-I", "-S", "-c", statement], check=True)

    ours, peer, _ = in_turns(lambda: start(f"{code}; import noclobber"), lambda: start(code), rounds=31)
    return Row(
        "import noclobber",
        "bare interpreter, -I -S",
        ours / peer,
        "≤ + 5 ms",
        ours - peer <= 0.005,
        f"{spelled(ours)} against {spelled(peer)}: + {spelled(max(ours - peer, 0.0))}",
    )
