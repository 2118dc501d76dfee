"""
The coding-agent hosts whose hooks we answer: one file each, pure functions, no disk.

A host module has

- `read(payload) -> Event`: what its hook JSON says, in our words (`event` has the words);
- `phrase(event, error) -> Answer`: our decision in its words; `error` None lets the call through;
- `warn(event, error) -> Answer`: what to tell the agent after a call that cannot be taken back.

Fields that are not known are left alone, so that a later version of a host is read as far as it is
understood. What is wrong with a field that is needed raises `BadRequestError`; what that means for
the call (a write is refused, anything else goes ahead) is for the hook to say.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from noclobber.errors import NoclobberError
    from noclobber.hosts.event import Answer, Event

    class Host(Protocol):
        """What a host module has."""

        ASKED: dict[str, str]
        """What a payload says that asks before a tool call."""

        def read(self, payload: dict[str, Any]) -> Event:
            """Say in our words what happened."""

        def phrase(self, event: Event, error: NoclobberError | None) -> Answer:
            """Say in the host's words what was decided."""

        def warn(self, event: Event, error: NoclobberError) -> Answer:
            """Tell the agent what became of a call that is over."""


HOSTS = {
    # name on the command line: module below this package
    "claude-code": "claude_code",
    "codex": "codex",
    "copilot": "copilot",
    "cursor": "cursor",
    "gemini": "gemini",
    "opencode": "opencode",
    "qwen": "qwen",
}


def load(name: str) -> Host:
    """Return a host's module. `KeyError` for a name that is not in `HOSTS`."""
    module: Any = __import__(f"noclobber.hosts.{HOSTS[name]}", fromlist=("read",))
    host: Host = module
    return host
