"""Ways in of a program: turns, tools of a turn, the engine, an executor of its own; each also for asyncio."""

from __future__ import annotations

from typing import Any

from noclobber import Edit, HookEngine, ToolCall, Workspace, aio
from noclobber.errors import NoclobberError
from tests.promises.agent import LANDED, Agent, Stand, Told, Way, outcome, refused
from tests.rigs.driven import Driven, running_loop


class TurnAgent(Agent):
    """The methods of a turn."""

    def __init__(self, stand: Stand, name: str, workspace: Any = None) -> None:
        super().__init__(stand, name)
        self.workspace: Any = workspace or Workspace(stand.root)
        stand.closing.append(self.workspace.close)
        self.turn: Any = self.workspace.turn(agent_id=name)

    def read(self, name: str, lines: tuple[int, int] | None = None) -> None:
        first, last = lines or (None, None)
        try:
            self.turn.read_file(name, start_line=first, end_line=last)
        except NoclobberError:
            pass  # As for a model: the turn goes on.

    def read_unsure(self, name: str, shown: bytes) -> None:
        call = ToolCall("read_file", {"path": name}, agent_id=self.name, turn_id=self.turn.turn_id)
        engine = HookEngine(getattr(self.workspace, "sync", self.workspace))
        assert engine.pre_tool_use(call).allowed
        with open(self.stand.path(name), "ab") as file:
            file.write(b"saved while it was read\n")
        engine.post_tool_use(call, shown)

    def write(self, name: str, content: bytes, expected: str | None = None) -> Told:
        return outcome(lambda: self.turn.write_file(name, content, expected_hash=expected))

    def edit(self, name: str, old: str, new: str) -> Told:
        return outcome(lambda: self.turn.edit_file(name, [Edit(old, new)]))

    def initial_hash(self, name: str) -> str | None:
        found: str | None = self.turn.get_initial_hash(name)
        return found

    def new_turn(self) -> None:
        self.turn.end()
        self.turn = self.workspace.turn(agent_id=self.name)


class CallAgent(TurnAgent):
    """Any tool of a turn by its name, as data."""

    def _call(self, tool: str, **given: Any) -> Told:
        given = {name: value for name, value in given.items() if value is not None}
        return outcome(lambda: self.turn.call(tool, given))

    def read(self, name: str, lines: tuple[int, int] | None = None) -> None:
        first, last = lines or (None, None)
        self._call("read_file", path=name, start_line=first, end_line=last)

    def write(self, name: str, content: bytes, expected: str | None = None) -> Told:
        return self._call("write_file", path=name, content=content, expected_hash=expected)

    def edit(self, name: str, old: str, new: str) -> Told:
        return self._call("edit_file", path=name, edits=[{"old": old, "new": new}])


class ModelAgent(TurnAgent):
    """A model's tool calls, by `turn.tools()`."""

    def _call(self, tool: str, **given: Any) -> Told:
        given = {name: value for name, value in given.items() if value is not None}
        answer = self.turn.tools("anthropic").answer(tool, given)
        if answer.error is None:
            return Told(LANDED, text=answer.text)
        return Told(
            answer.error.code, answer.for_agent, answer.for_controller, "\n".join((*answer.beside, ""))
        )

    def read(self, name: str, lines: tuple[int, int] | None = None) -> None:
        first, last = lines or (None, None)
        self._call("read_file", path=name, start_line=first, end_line=last)

    def write(self, name: str, content: bytes, expected: str | None = None) -> Told:
        return self._call("write_file", path=name, content=content.decode(), expected_hash=expected)

    def edit(self, name: str, old: str, new: str) -> Told:
        return self._call("edit_file", path=name, edits=[{"old_string": old, "new_string": new}])


class EngineAgent(TurnAgent):
    """Calls as data, which the engine carries out: `HookEngine.execute`."""

    def __init__(self, stand: Stand, name: str, workspace: Any = None, engine: Any = None) -> None:
        super().__init__(stand, name, workspace)
        self.engine: Any = engine or HookEngine(self.workspace)

    def _call(self, tool: str, **given: Any) -> Told:
        params = {name: value for name, value in given.items() if value is not None}
        call = ToolCall(tool, params, agent_id=self.name, turn_id=self.turn.turn_id)
        return self._carried_out(call)

    def _carried_out(self, call: ToolCall) -> Told:
        return outcome(lambda: self.engine.execute(call))

    def read(self, name: str, lines: tuple[int, int] | None = None) -> None:
        first, last = lines or (None, None)
        self._call("read_file", path=name, start_line=first, end_line=last)

    def write(self, name: str, content: bytes, expected: str | None = None) -> Told:
        return self._call("write_file", path=name, content=content, expected_hash=expected)

    def edit(self, name: str, old: str, new: str) -> Told:
        return self._call("edit_file", path=name, edits=[{"old": old, "new": new}])


class ExecutorAgent(EngineAgent):
    """The same calls, carried out by the program itself between `pre_tool_use` and `post_tool_use`."""

    def _carried_out(self, call: ToolCall) -> Told:
        decision = self.engine.pre_tool_use(call)
        if not decision.allowed:
            return refused(decision.error)
        result: Any
        try:
            result = self._execute(call)
        except OSError as error:
            result = error
        told = self.engine.post_tool_use(call, result)
        return Told(LANDED) if told is None else refused(told)

    def _execute(self, call: ToolCall) -> Any:
        path = self.root / call.params["path"]
        if call.tool == "read_file":
            first, last = call.params.get("start_line"), call.params.get("end_line")
            data = path.read_bytes()
            return data if last is None else b"".join(data.splitlines(keepends=True)[(first or 1) - 1 : last])
        if call.tool == "write_file":
            path.write_bytes(call.params["content"])
        else:
            [edit] = call.params["edits"]
            path.write_text(path.read_text().replace(edit["old"], edit["new"], 1))
        return "done"


def _driven(stand: Stand) -> tuple[Any, Any]:
    """Return an `aio.Workspace` behind the blocking names, and its loop."""
    running = running_loop()
    loop = running.__enter__()
    stand.closing.append(lambda: running.__exit__(None, None, None))
    return Driven(aio.Workspace(stand.root), loop), loop


def _aio_turn(stand: Stand, name: str) -> Agent:
    workspace, _ = _driven(stand)
    return TurnAgent(stand, name, workspace)


def _aio_engine(kind: type[EngineAgent]) -> Any:
    def make(stand: Stand, name: str) -> Agent:
        workspace, loop = _driven(stand)
        return kind(stand, name, workspace, Driven(aio.HookEngine(workspace._twin), loop))

    return make


OWN_READS = "one read of ours gives the bytes and their hash, so the version is always known"
NO_COMMANDS = "its calls are not commands; see the columns of commands"
BASE = {"unsure": OWN_READS, "commands": NO_COMMANDS}
RAW = "models send and are sent text"
OWN_CONTENT = "somebody else writes, and takes no other content than the agent's; its write is refused"
TORN = {"commands": NO_COMMANDS, "rewrite": OWN_CONTENT}

WAYS = (
    Way("turn", "library", TurnAgent, BASE),
    Way("turn.call", "library", CallAgent, BASE),
    Way("turn.tools", "library", ModelAgent, {**BASE, "raw": RAW}),
    Way("aio turn", "library", _aio_turn, BASE),
    Way("execute", "engine", EngineAgent, BASE),
    Way("own executor", "engine", ExecutorAgent, TORN),
    Way("aio execute", "engine", _aio_engine(EngineAgent), BASE),
    Way("aio own executor", "engine", _aio_engine(ExecutorAgent), TORN),
)
