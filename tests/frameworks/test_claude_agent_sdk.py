"""Claude Agent SDK: what `guarded()` returns, and what its hooks and tools do with a request as Claude Code sends it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

claude_agent_sdk = pytest.importorskip(
    "claude_agent_sdk", reason="not installed here; `make frameworks` runs this"
)

from claude_agent_sdk._internal.sdk_mcp_bridge import SdkMcpBridge  # noqa: E402

from noclobber import parse_stale  # noqa: E402
from noclobber.adapters.claude_agent_sdk import guarded  # noqa: E402
from noclobber.core.wire import parse_refusal  # noqa: E402
from noclobber.errors import BadRequestError  # noqa: E402

pytestmark = pytest.mark.wrong_errors

HELLO: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


class Session:
    """One session of Claude Code, as the SDK sees it: hooks are called, then the tool's server is."""

    def __init__(self, given: dict[str, Any], session_id: str = "s") -> None:
        [matcher] = given["hooks"]["PreToolUse"]
        [self._before] = matcher.hooks
        [matcher] = given["hooks"]["PreCompact"]
        [self._compact] = matcher.hooks
        self._bridge = SdkMcpBridge("noclobber", given["mcp_servers"]["noclobber"]["instance"])
        self._session_id, self._number = session_id, 0

    async def __aenter__(self) -> Session:
        await self.ask("initialize", HELLO)
        await self._bridge.handle({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._bridge.aclose()

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request to the server."""
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        answer = await self._bridge.handle(request)
        assert answer is not None
        return answer["result"]

    async def call(self, name: str, *, agent: str | None = None, hook: bool = True, **given: Any) -> Any:
        """Call a tool: who calls is told to the hook, the call's id to the tool."""
        call_id = f"toolu_{self._number}"
        if hook:
            event = {
                "hook_event_name": "PreToolUse",
                "session_id": self._session_id,
                "tool_name": f"mcp__noclobber__{name}",
                "tool_input": given,
                "tool_use_id": call_id,
                **({"agent_id": agent, "agent_type": "general-purpose"} if agent else {}),
            }
            assert await self._before(event, call_id, {}) == {}
        meta = {"claudecode/toolUseId": call_id}
        return await self.ask("tools/call", {"name": name, "arguments": given, "_meta": meta})

    async def compact(self) -> None:
        """The conversation is about to be summarised."""
        await self._compact({"session_id": self._session_id, "hook_event_name": "PreCompact"}, None, {})


def text(result: Any) -> str:
    """What the model reads."""
    [part] = result["content"]
    return str(part["text"])


def test_each_subagent_has_a_snapshot_of_its_own(root: Path) -> None:
    """N-frameworks: what one has read, the other one has not."""
    (root / "plan.md").write_text("one\n")

    async def play() -> None:
        async with Session(guarded(root)) as session:
            await session.call("read_file", agent="a", path="plan.md")
            other = await session.call("write_file", agent="b", path="plan.md", content="b\n")
            assert parse_refusal(text(other)) is not None
            assert other["isError"]
            done = await session.call("write_file", agent="a", path="plan.md", content="a\n")
            assert not done.get("isError")

    asyncio.run(play())
    assert (root / "plan.md").read_text() == "a\n"


def test_a_refusal_is_the_exact_object_and_nothing_else(root: Path) -> None:
    """N-frameworks, 009-FR-004: one part, which is the object."""
    plan = root / "plan.md"
    plan.write_text("one\n")

    async def play() -> Any:
        async with Session(guarded(root)) as session:
            await session.call("read_file", path="plan.md")
            plan.write_text("theirs\n")
            return await session.call("write_file", path="plan.md", content="mine\n")

    refused = asyncio.run(play())
    assert refused["isError"]
    assert parse_stale(text(refused)) is not None


def test_a_call_of_which_no_hook_told_is_refused(root: Path) -> None:
    """N-frameworks: it would be checked against nothing. The remedy is named."""

    async def play() -> Any:
        async with Session(guarded(root)) as session:
            return await session.call("write_file", hook=False, path="plan.md", content="mine\n")

    refused = asyncio.run(play())
    assert refused["isError"]
    assert "Pass on everything that guarded() returns" in text(refused)
    assert not (root / "plan.md").exists()


def test_a_conversation_that_was_summarised_has_seen_nothing(root: Path) -> None:
    """N-frameworks: the model may write what it remembers of a version that it cannot name."""
    (root / "plan.md").write_text("one\n")

    async def play() -> Any:
        async with Session(guarded(root)) as session:
            await session.call("read_file", path="plan.md")
            await session.compact()
            return await session.call("write_file", path="plan.md", content="mine\n")

    refused = parse_refusal(text(asyncio.run(play())))
    assert refused is not None
    assert refused[0] == "UNREAD_FILE"


@pytest.mark.parametrize(
    ("beside", "says"),
    [
        ({"mcp_servers": {"noclobber": {}}}, "Give your MCP server another name"),
        ({"mcp_servers": "servers.json"}, "Give mcp_servers as a dict"),
        ({"allowed_tools": ["Write"]}, "use by='hooks'"),
    ],
    ids=["a server's name", "servers in a file", "a tool that is replaced"],
)
def test_what_does_not_go_together_is_an_error_before_the_run(
    root: Path, beside: dict[str, Any], says: str
) -> None:
    """N-frameworks: the thing and the remedy are named."""
    with pytest.raises(BadRequestError, match=says):
        guarded(root, beside=beside)


def test_options_of_ones_own_are_joined(root: Path) -> None:
    """N-frameworks: one's own hooks and tools stay, and stay first."""
    mine = claude_agent_sdk.HookMatcher(matcher="Bash", hooks=[])
    beside = {"model": "m", "hooks": {"PreToolUse": [mine]}, "disallowed_tools": ["Bash"]}
    given = guarded(root, beside=beside)
    assert given["model"] == "m"
    assert given["hooks"]["PreToolUse"][0] is mine
    assert len(given["hooks"]["PreToolUse"]) == 2
    assert given["disallowed_tools"][:2] == ["Bash", "Read"]


def test_a_way_that_does_not_exist_is_named(root: Path) -> None:
    """N-frameworks: with those that do."""
    wrong: Any = "magic"
    with pytest.raises(BadRequestError, match="Choose 'tools' or 'hooks'"):
        guarded(root, by=wrong)


def test_an_option_that_hooks_would_not_see_is_refused(root: Path) -> None:
    """N-frameworks: it would silently hold for nothing."""
    with pytest.raises(BadRequestError, match=r"'on_stale' given here.*noclobber\.toml"):
        guarded(root, by="hooks", on_stale="merge")
