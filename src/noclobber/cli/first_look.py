"""
`noclobber` without a command: what it sees in this folder, and the next step.

Somebody who types the name of a program wants to know what it would do here, not a list of twenty commands.
It only looks: nothing is created, changed or run.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from noclobber.cli import EXIT_OK
from noclobber.cli.terminal import columns_wide, is_terminal, print_json, styled, visible
from noclobber.core.project import OPTIONS_NAME, find_project, is_marked, no_project
from noclobber.errors import NoclobberError
from noclobber.text.visible import fold

if TYPE_CHECKING:
    from collections.abc import Sequence

Step = tuple[str, str]
DEMO = "see a stale write refused, in half a minute"


def run(words: Sequence[str] = ()) -> int:
    """Say what is here and what comes next."""
    seen = look(find_project(os.getcwd()))
    if "--json" in words:
        print_json(seen)
    else:
        print(page(seen), end="")
    return EXIT_OK


def look(root: str) -> dict[str, Any]:
    """Return what there is in a project, and the next steps."""
    agents = _agents(root)
    events, refused, trouble = _record(root)
    steps = _next_nowhere(agents) if no_project(root) else _next(agents, events, refused, trouble)
    return {
        "root": root,
        "found_by": _found_by(root),
        "agents": agents,
        "events": events,
        "refused": refused,
        "trouble": trouble,
        "next": [{"command": command, "why": why} for command, why in steps],
    }


def page(seen: dict[str, Any]) -> str:
    """Return that as text for people."""
    lines = [f"{styled('project', 'strong')}  {visible(seen['root'])} ({seen['found_by']})"]
    lines += [f"{styled('agents', 'strong')}   {_told(seen['agents'])}"]
    lines += [f"{styled('record', 'strong')}   {_recorded(seen)}", "", styled("next", "strong")]
    columns = columns_wide() if is_terminal() else 0
    text = "\n".join([*lines, *_steps(seen["next"], columns)]) + "\n"
    return fold(text, columns) if columns else text


def _steps(steps: list[dict[str, str]], columns: int) -> list[str]:
    """Return a line for each step; where one would be folded, the command has its line, and below is why."""
    width = max(len(step["command"]) for step in steps)
    lines = [f"  {step['command']:<{width}}  {step['why']}" for step in steps]
    if not columns or max(map(len, lines)) <= columns:
        return lines
    return [line for step in steps for line in (f"  {step['command']}", f"      {step['why']}")]


def _found_by(root: str) -> str:
    if what := no_project(root):
        return f"{what}: no project"
    if is_marked(root):
        return f"it has {OPTIONS_NAME}" if os.path.lexists(f"{root}/{OPTIONS_NAME}") else "it has a record"
    return "a git repository" if os.path.lexists(f"{root}/.git") else "this folder"


def _agents(root: str) -> list[dict[str, Any]]:
    """Return the coding agents that left files here or in the home folder, and whether hooks are there."""
    from noclobber.hosts.hook_entries import find_hosts, is_used_in
    from noclobber.hosts.installations import find

    return [
        {
            "host": host,
            "in_project": is_used_in(root, host),
            "hooks": [installed.path for installed in find(host, root)],
        }
        for host in find_hosts(root)
    ]


def _record(root: str) -> tuple[int, int, str]:
    """Return how many events there are, how many of the last 2000 are refusals, and what is in the way."""
    from noclobber.view.last_refusals import KINDS
    from noclobber.view.workspace_state import last_events

    troubles: list[str] = []
    try:
        events = last_events(root, troubles)
    except (NoclobberError, OSError) as error:
        return 0, 0, str(error)
    last = events[-1].get("seq", 0) if events else 0
    count = last if isinstance(last, int) else 0
    return count, sum(event.get("action_type") in KINDS for event in events), "; ".join(troubles)


def _told(agents: list[dict[str, Any]]) -> str:
    if not agents:
        return "no coding agent's files here or in your home folder"
    told = []
    for agent in agents:
        where = "here" if agent["in_project"] else "in your home folder"
        told.append(f"{agent['host']} ({'hooks installed' if agent['hooks'] else f'{where}, no hooks'})")
    return ", ".join(told)


def _recorded(seen: dict[str, Any]) -> str:
    if seen["trouble"]:
        return f"cannot be read: {visible(seen['trouble'])}"
    if not seen["events"]:
        return "no guarded write yet"
    noun = "event" if seen["events"] == 1 else "events"
    from noclobber.view.workspace_state import EVENTS_LOOKED_AT

    lately = f" of the last {EVENTS_LOOKED_AT:,}" if seen["events"] > EVENTS_LOOKED_AT else ""
    return f"{seen['events']:,} {noun}; refused{lately}: {seen['refused']:,}"


def _next_nowhere(agents: list[dict[str, Any]]) -> list[Step]:
    """The next steps of somebody who is in no project."""
    without = [agent["host"] for agent in agents if not agent["hooks"]]
    steps = [("cd PROJECT", "go into one first, and ask again")]
    if without:
        steps.append(
            (
                "noclobber install --user",
                f"guard what {_and(without)} {_writes(without)} in all your projects",
            )
        )
    return [*steps, ("noclobber demo", DEMO), ("noclobber --help", "every command")]


def _next(agents: list[dict[str, Any]], events: int, refused: int, trouble: str) -> list[Step]:
    without = [agent["host"] for agent in agents if not agent["hooks"]]
    steps: list[Step] = []
    if trouble:
        steps.append(("noclobber doctor", "what is wrong, and the remedy"))
    if without and len(without) == len(agents):
        steps.append(("noclobber install", f"guard what {_and(without)} {_writes(without)} here"))
    elif without and any(agent["in_project"] for agent in agents if not agent["hooks"]):
        steps.append((f"noclobber install {' '.join(without)}", "guard these as well"))
    if not agents:
        steps.append(("noclobber run -- COMMAND …", "run any command as one transaction"))
        steps.append(("noclobber install HOST", "guard a coding agent: claude-code, codex, gemini, …"))
    if events:
        steps.append(("noclobber status", "who works here, and what was refused"))
    if refused:
        steps.append(("noclobber ledger tail", "the last writes and refusals"))
    if not events and not without and agents:
        steps.append(("noclobber doctor", "try the hooks, and see what this filesystem can promise"))
    if not events:
        steps.append(("noclobber demo", DEMO))
    return [*steps, ("noclobber --help", "every command")]


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _writes(names: list[str]) -> str:
    return "writes" if len(names) == 1 else "write"
