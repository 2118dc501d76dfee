"""
Who calls a tool, as a framework tells it. An adapter makes one for every tool call.

`memory` and `mark` say what the model still knows. A framework that keeps conversations can go back to an
earlier point of one (a checkpoint, a fork, a retry), in this process or in another. Then our snapshot knows
versions of files that this model never saw, and a write made from an older one would pass. So an adapter that
can see the model's messages passes the ids of those that it has now, and notes each call under the id of the
message that asked for it. If a noted message is no longer there, the model has lost what it saw with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Set


class Caller(NamedTuple):
    """Who calls. Only what the framework says; None for what it does not."""

    agent_id: str = "agent"
    """The agent's name. A subagent's instance or a parallel branch has one of its own (`branch`)."""
    session_id: str | None = None
    """The conversation or thread, if the run belongs to one. It may have a past in another process."""
    run_id: str | None = None
    """This run of the agent."""
    call_id: str | None = None
    """The id that the model gave to its call."""
    branch: str = ""
    """What tells a subagent's instance or a parallel branch from others of that name; empty: the main one."""
    memory: Set[str] | None = None
    """Ids of the messages that the model has now; None if the framework does not show them."""
    mark: str | None = None
    """The id, among those, of the message that this call belongs to."""

    step: str | None = None
    """What tells the model's message that asked for this call from others, if `mark` does not."""

    @property
    def name(self) -> str:
        """The agent as the ledger names it: unique within the session."""
        return f"{self.agent_id}/{self.branch[:12]}" if self.branch else self.agent_id
