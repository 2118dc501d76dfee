"""Tools of a user's own that open files themselves: what every adapter can put its check around."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from noclobber import Tool
from tests.frameworks.driver import Call

SAID = (
    Tool("load_note", "read"),
    Tool("save_note", "write"),
    Tool("change_note", "edit", form="replacement"),
)
"""What the user says of them."""

NO_MOMENT = {"cancelled": "the tools write by themselves; there is no moment inside a commit of ours"}
_TOOLS = {"read": "load_note", "write": "save_note", "edit": "change_note"}
_NAMES = {"old": "old_string", "new": "new_string"}


def fail_next(root: Path, *, and_save: tuple[str, bytes] | None = None) -> None:
    """Let the next call of a tool fail; `and_save`: somebody saves this file during the call."""
    (root.parent / "failing").write_bytes(b"")
    if and_save is not None:
        (root.parent / "failing").write_bytes(and_save[0].encode() + b":" + and_save[1])


def _perhaps_fail(root: Path) -> None:
    failing = root.parent / "failing"
    if failing.exists():
        name, _, data = failing.read_bytes().partition(b":")
        failing.unlink()
        if name:
            (root / name.decode()).write_bytes(data)
        raise FileNotFoundError("the connection is down")


def note_tools(root: Path) -> list[Callable[..., str]]:
    """The tools, as plain functions."""

    def load_note(path: str) -> str:
        """Read a note."""
        _perhaps_fail(root)
        return (root / path).read_bytes().decode("utf-8", "surrogateescape")

    def save_note(path: str, content: str) -> str:
        """Write a note."""
        _perhaps_fail(root)
        (root / path).write_bytes(content.encode("utf-8", "surrogateescape"))
        return "saved"

    def change_note(path: str, old_string: str, new_string: str) -> str:
        """Change a part of a note."""
        text = (root / path).read_bytes().decode("utf-8", "surrogateescape")
        (root / path).write_bytes(text.replace(old_string, new_string, 1).encode("utf-8", "surrogateescape"))
        return "changed"

    return [load_note, save_note, change_note]


def note_arguments(call: Call) -> tuple[str, dict[str, Any]]:
    """A call's tool and arguments."""
    return _TOOLS[call.kind], {_NAMES.get(key, key): value for key, value in call.given().items()}
