"""MCP file servers: the reference server of the protocol's authors, and noclobber's own in its place."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from bench.mcp_peer import REFERENCE, Peer, Unavailable, our_command, reference_command

from score.rounds import TOOL, ReadFile, Score, Tally, ToolUse, WriteFile, plans, play

SUBJECTS = ("server-filesystem",)


def score(name: str, seed: int, repetitions: int, *, guarded: bool) -> Score:
    """Play all rounds over one connection."""
    version = "noclobber mcp" if guarded else REFERENCE[1]
    try:
        command = our_command() if guarded else reference_command()
    except Unavailable as error:
        return Score(name, "MCP server", version, guarded, (), str(error))
    tallies: list[Tally] = []
    with tempfile.TemporaryDirectory(prefix="nc-score-") as folder:
        root = Path(folder).resolve()
        with Peer([*command, str(root)]) as peer:
            conversation = play(root, plans(seed, repetitions, (TOOL,)), lambda text: text, tallies)
            use: ToolUse = next(conversation)
            try:
                while True:
                    use = conversation.send(_text(_called(peer, use)))
            except StopIteration:
                pass
    return Score(name, "MCP server", version, guarded, tuple(tallies))


def _called(peer: Peer, use: ToolUse) -> dict[str, Any]:
    match use:
        case ReadFile(path):
            return peer.call("read_text_file", path=str(path))
        case WriteFile(path, content):
            return peer.call("write_file", path=str(path), content=content)
    raise AssertionError(use)


def _text(result: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in result.get("content", ()))
