"""
One tool call and its answer over stdio: our MCP server against the reference server, 10 KiB a file.

Both are processes, asked in turns by the same client. Ours hashes, checks, commits through the guard and
records; the reference server writes a temporary file and renames it. Each write has new content: writing one
content again and again would measure how long the disk takes to forget a file that it is still writing.

The last row is what no server on the same SDK can fall below: a tool that does nothing and returns as much.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from bench import Row, in_turns, spelled
from bench.mcp_peer import Peer, Unavailable, our_command, reference_command

BAR = 1.2
ROUNDS = 120
TEXT = ("x" * 79 + "\n") * 128  # 10 KiB.
AGAINST = "the reference filesystem server (node)"


def rows() -> Iterator[Row]:
    """Reading and writing; a row that says why where there is nothing to compare with."""
    try:
        reference = reference_command()
        if importlib.util.find_spec("mcp") is None:
            raise Unavailable("the extra 'mcp' is not installed")
    except Unavailable as reason:
        yield Row("MCP round trips", AGAINST, 0.0, f"<= {BAR} x", ok=True, detail=f"skipped: {reason}")
        return
    with tempfile.TemporaryDirectory(prefix="noclobber-bench-") as folder:
        yield from _measured(reference, Path(folder).resolve())


def _measured(reference: list[str], folder: Path) -> Iterator[Row]:
    for name in ("ours", "theirs"):
        (folder / name).mkdir()
        (folder / name / "page.md").write_text(TEXT)
    with (
        Peer([*our_command(), str(folder / "ours")]) as ours,
        Peer([*reference, str(folder / "theirs")]) as theirs,
    ):
        for tool in ("read_text_file", "write_file"):
            our_s, their_s, ratio = in_turns(
                _caller(ours, tool, folder / "ours"),
                _caller(theirs, tool, folder / "theirs"),
                rounds=ROUNDS,
                batch=3,
            )
            yield Row(
                what=f"MCP {tool} round trip, 10 KiB",
                against=AGAINST,
                ratio=ratio,
                bar=f"<= {BAR} x",
                ok=ratio <= BAR,
                detail=f"{spelled(our_s)} against {spelled(their_s)}",
            )
        with Peer([sys.executable, "-m", "bench.mcp_empty"], cwd=str(Path(__file__).parents[1])) as empty:
            our_s, floor_s, ratio = in_turns(
                _caller(ours, "read_text_file", folder / "ours"),
                _caller(empty, "read_text_file", folder / "ours"),
                rounds=ROUNDS,
                batch=3,
            )
        yield Row(
            what="MCP read_text_file round trip, 10 KiB",
            against="a tool of the same SDK that does nothing",
            ratio=ratio,
            bar="none",
            ok=True,
            detail=f"{spelled(our_s)} against {spelled(floor_s)}",
        )


def _caller(peer: Peer, tool: str, folder: Path) -> Callable[[], None]:
    path, numbers = str(folder / "page.md"), count()

    def call() -> None:
        content = {"content": f"{next(numbers):9}{TEXT[9:]}"} if tool == "write_file" else {}
        answer = peer.call(tool, path=path, **content)
        assert not answer.get("isError"), answer

    return call
