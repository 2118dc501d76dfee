"""
The demo's first half: one agent, one person, one file.

The agent reads the plan, a person saves it (in a process of its own, by rename, as editors do), and the
agent's write is refused. Then the same again with a controller, which reads the file again and lets the
agent try again; both lines survive. At the end the ledger shows what happened, and its chain verifies.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from noclobber.demo import editor_save
from noclobber.errors import StaleFileError
from noclobber.guard.controller import AgentController
from noclobber.guard.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable

    from noclobber.guard.controller import Attempt

PLAN = "# Plan\n- agree on the goal\n"


class Told(NamedTuple):
    """What happened, as data."""

    to_controller: dict[str, str]
    to_agent: dict[str, Any]
    transitions: tuple[str, ...]
    final_text: str
    events: tuple[str, ...]
    ledger_head: str
    level: str


def tell(folder: str, say: Callable[[str], None]) -> Told:
    """Play the story in an empty folder; `say` gets one paragraph at a time."""
    path = os.path.join(folder, "plan.md")
    with open(path, "w", encoding="utf-8") as file:
        file.write(PLAN)
    with Workspace(folder) as workspace:
        refused = _refusal(workspace, path, say)
        transitions, level = _recovery(workspace, path, say)
        with open(path, encoding="utf-8") as file:
            final_text = file.read()
        say(f"plan.md now, with the lines of both:\n{_indented(final_text)}")
        events = tuple(f"{event['seq']} {event['action_type']}" for event in workspace.ledger.events())
        report = workspace.ledger.verify()
        say(
            f"The ledger has it all: {', '.join(events)}.\n"
            f"Its chain verifies: {report.event_count} events, head {report.head[:23]}…"
        )
        return Told(
            refused.to_controller(), refused.to_agent(), transitions, final_text, events, report.head, level
        )


def _refusal(workspace: Workspace, path: str, say: Callable[[str], None]) -> StaleFileError:
    with workspace.turn(agent_id="builder-1") as turn:
        seen = turn.read_file("plan.md")
        say(f"The agent reads plan.md, {len(seen.content)} bytes, sha256 {seen.sha256[:12]}…")
        _person_saves(path, "- call Ada before Friday")
        say('While it thinks, a person adds "- call Ada before Friday" and saves.')
        try:
            turn.write_file("plan.md", seen.text + "- write the tests\n")
        except StaleFileError as refusal:
            say("The agent writes a version of the old text, and is refused. Its controller gets exactly:")
            say(_indented(json.dumps(refusal.to_controller(), indent=2)))
            say(f"and the model gets exactly:\n{_indented(json.dumps(refusal.to_agent(), indent=2))}")
            return refusal
    raise AssertionError("the write went through, and the person's line is lost")


def _recovery(workspace: Workspace, path: str, say: Callable[[str], None]) -> tuple[tuple[str, ...], str]:
    with workspace.turn(agent_id="builder-1") as turn:
        controller = AgentController(turn)

        def step(attempt: Attempt) -> Any:
            seen = attempt.fresh or turn.read_file("plan.md")
            if attempt.number == 1:
                _person_saves(path, "- and book a room")
            return turn.write_file("plan.md", seen.text + "- write the tests\n")

        written = controller.run(step)
    transitions = tuple(f"{each.before} → {each.after} ({each.reason})" for each in controller.history)
    say(
        "Again, with a controller; and again the person saves first. The controller reads the file again"
        f" and asks the agent again:\n{_indented(chr(10).join(transitions))}"
    )
    say(f"The second attempt landed, at level {written.level}.")
    return transitions, written.level


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.strip().splitlines())


def _person_saves(path: str, line: str) -> None:
    """Save in another process, which does not use noclobber."""
    command = [sys.executable, "-I", editor_save.__file__, path, line]
    # In a session of its own, so that a Ctrl-C does not end it with a traceback.
    subprocess.run(command, check=True, timeout=30, start_new_session=True)
