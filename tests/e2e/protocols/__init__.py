"""The protocols in which hosts talk to a model, and what they have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol


class Use(NamedTuple):
    """One tool call, in the host's own words. A tool of a namespace is `namespace.tool`."""

    tool: str
    input: dict[str, Any]


class Item(NamedTuple):
    """What a model is given: something that the user said, or what a tool returned."""

    is_said: bool
    text: str


class Asked(NamedTuple):
    """A request: the conversation in order, and the tools on offer with their descriptions."""

    items: list[Item]
    tools: Mapping[str, Any]


class Turn(NamedTuple):
    """What is to be said in answer to a request. No uses: a few words, and the agent is done."""

    request: dict[str, Any]
    path: str
    word: str
    number: int
    uses: tuple[Use, ...]

    def call_id(self, index: int) -> str:
        """Return an id for a tool call that is the same if the request is repeated."""
        return f"call_{self.word}_{self.number}_{index}"


class ModelProtocol(Protocol):
    """One protocol."""

    def speaks(self, path: str) -> bool:
        """Return whether an address belongs to this protocol."""
        ...

    def is_conversation(self, path: str) -> bool:
        """Return whether an address is for a model's answer (and not for counting tokens, say)."""
        ...

    def understand(self, request: dict[str, Any]) -> Asked:
        """Return what a request says."""
        ...

    def say(self, turn: Turn) -> tuple[str, bytes]:
        """Return the answer's content type and bytes."""
        ...
