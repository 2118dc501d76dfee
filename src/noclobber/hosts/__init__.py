"""
The coding-agent hosts whose hooks we answer: one file each.

A new host is a new file with these names, and a line in `HOSTS`:

| name | what it is |
|---|---|
| `read(payload)` | the host's hook JSON as an `Event` |
| `phrase(event, error)` | our decision as the host's answer; `error` None lets the call through |
| `warn(event, error)` | what to tell the agent after a call that already happened |
| `tell(event, text)` | a text for the agent: beside a call's result, or beside what the user said |
| `rewrite(event, content)` | have other content written; asked only where `read` sets `Event.given` |
| `READ_TOOL` | what the host calls the tool that reads a file; refusals name it |
| `CHECK_EVENT` | the members of a payload that asks before a tool call |
| `TRACES` | files and folders that show that the host is used, in a project or (with a dot) at home |
| `hooks(base, scope, portable)` | where the host's hooks are configured, and our hooks there |
| `traits()` | what else differs: how it is best installed, its packages, trust, its shell (`traits`) |

The first three are pure functions, and run in every hook call. `hooks` and `traits` run only in `install`,
`start` and `doctor`, and import what they need by themselves.

Unknown fields are ignored, so that later versions of a host still work. A field that is needed and cannot be
read is put into `Event.trouble`; `hook/main` then refuses a write, and lets everything else go ahead.

`event` has the values and readers that hosts share, `hook_entries` the parts of a hook configuration,
`command_line` the command in it, which answers for a hook that does not run.
`install` adds our hooks to a configuration and removes them, and `before_install` remembers what was there;
`json_edit` changes JSON text without reformatting it. `packages` makes plugins and extensions of the same
hooks. `installations` finds what is installed, and `loading` what keeps a host from using it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from noclobber.errors import NoclobberError
    from noclobber.hosts.event import Answer, Event
    from noclobber.hosts.hook_entries import ConfigFile
    from noclobber.hosts.traits import Traits


class Host(Protocol):
    """What a host module has."""

    CHECK_EVENT: dict[str, str]
    READ_TOOL: str
    TRACES: tuple[str, ...]

    def read(self, payload: dict[str, Any]) -> Event:
        """Return the host's event as ours."""

    def phrase(self, event: Event, error: NoclobberError | None) -> Answer:
        """Return our decision as the host's answer."""

    def warn(self, event: Event, error: NoclobberError) -> Answer:
        """Return what to tell the agent after a call that already happened."""

    def tell(self, event: Event, text: str) -> Answer:
        """Return a text for the agent."""

    def rewrite(self, event: Event, content: bytes) -> Answer:
        """Return the host's input with other content in it, and no permission."""

    def hooks(self, base: str, scope: str, portable: bool) -> ConfigFile:
        """Return where the host's hooks are configured, and our hooks there."""

    def traits(self) -> Traits:
        """Return what else differs."""


HOSTS = {
    # name on the command line: module below this package
    "claude-code": "claude_code",
    "cline": "cline",
    "codex": "codex",
    "copilot": "copilot",
    "cursor": "cursor",
    "gemini": "gemini",
    "opencode": "opencode",
    "qwen": "qwen",
}


# Run the hooks of another host, and are told by their events.
GUESTS = {"vscode": "vscode"}


def load(name: str) -> Host:
    """Return a host's module. `KeyError` for a name that is not in `HOSTS` or `GUESTS`."""
    module: Any = __import__(f"noclobber.hosts.{HOSTS.get(name) or GUESTS[name]}", fromlist=("read",))
    host: Host = module
    return host
