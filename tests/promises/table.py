"""
The table for people, docs/promises.md, made from the cells and from how a run ended.

`make promises` runs every cell and writes the page; a test compares the page with the cells.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.promises.agent import Way
from tests.promises.cells import REASONS, Cell, cells
from tests.promises.scenarios import SCENARIOS, VARIANTS
from tests.promises.ways import WAYS

YES, FAILED, NOT_RUN = "yes", "**NO**", "not run"
TABLES = {
    "Programs": ("library", "engine", "MCP"),
    "Coding agents": ("hosts",),
    "Scripts and commands": ("command line", "commands"),
}
TITLES = {
    "merge": 'With `on_stale = "merge"`',
    "coordinator": "With a coordinator",
    "durable": "With `durable = true`",
}
HEAD = """\
# Promises, by every way in

Written by `make promises` from a run of `tests/promises`. Each row is a promise of the specifications (or a finding of the reviews), with
its ids in [requirements.md](requirements.md), and one scenario in `tests/promises/scenarios.py` or `collisions.py`. Each column is a way in:
the same scenario, played by an agent that comes that way. [guarantees.md](guarantees.md) has conditions, and what is not promised.

*yes*: played in `make test`, and it holds. *–*: it makes no sense there, for the reason in the note. *no*: not promised, for the reason in
the note; the scenario is played, and fails. *open*: it should hold and does not yet; the finding is named.

"""
WAYS_IN = """\
| way in | what the agent does |
|---|---|
| turn, turn.call, turn.tools | a program calls the methods of a turn, its tools by name, or hands it a model's tool calls |
| aio … | the same names for asyncio |
| execute | a program describes calls as data; `HookEngine.execute` carries them out |
| own executor | a program carries calls out itself, between `pre_tool_use` and `post_tool_use` |
| MCP stdio, MCP HTTP | a client of the MCP server |
| Claude Code … opencode | the host's own tools, with noclobber's hook before and after each call |
| opencode's tools | the tools that noclobber's plugin puts in the place of opencode's |
| noclobber write | a script that says what it has seen by a hash |
| noclobber run, turn.run, run_command, Claude's Bash | shell commands in a private view |
"""


class Notes:
    """Footnotes: a number for each reason."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, sign: str, reason: str) -> str:
        """Return a sign with the number of its note."""
        return f"{sign} <sup>{self._numbers.setdefault(reason, len(self._numbers) + 1)}</sup>"

    def text(self) -> str:
        """Return the notes."""
        return "".join(f"{number}. {_sentence(reason)}\n" for reason, number in self._numbers.items())


def _sentence(reason: str) -> str:
    return f"{reason[0].upper()}{reason[1:]}."


def mark_of(cell: Cell, notes: Notes) -> str:
    """Return what a cell says if its test ends as expected."""
    if cell.why_not is not None:
        return notes.mark("–", cell.why_not)
    if cell.finding is not None:
        return f"open ({cell.finding})"
    if cell.not_promised is not None:
        return notes.mark("no", REASONS[cell.not_promised])
    return YES


def page(outcomes: Mapping[str, str] | None = None) -> str:
    """Return the page; without outcomes, as it is if every test ends as expected."""
    notes = Notes()
    text = HEAD + WAYS_IN
    for title, groups in TABLES.items():
        ways = [way for way in WAYS.values() if way.group in groups]
        text += f"\n## {title}\n\n| promise | ids | {' | '.join(way.name for way in ways)} |\n"
        text += f"|---|---|{'---|' * len(ways)}\n"
        for name, row in _rows("").items():
            shown = [_shown(row[way.name], outcomes, notes) for way in ways]
            if any(not mark.startswith("–") for mark in shown):
                text += f"| {SCENARIOS[name].promise} | {SCENARIOS[name].ids} | {' | '.join(shown)} |\n"
    for variant in VARIANTS:
        if variant:
            text += f"\n## {TITLES[variant]}\n\n{_variant(variant, outcomes, notes)}"
    return f"{text}\n## Notes\n\n{notes.text()}"


def _variant(variant: str, outcomes: Mapping[str, str] | None, notes: Notes) -> str:
    """Only scenarios that the setting could change. A column is a group of ways in."""
    groups = list(dict.fromkeys(way.group for way in WAYS.values()))
    text = f"| promise | {' | '.join(groups)} |\n|---|{'---|' * len(groups)}\n"
    for name, row in _rows(variant).items():
        shown = [
            _together(
                [(way, _shown(row[way.name], outcomes, notes)) for way in WAYS.values() if way.group == group]
            )
            for group in groups
        ]
        text += f"| {SCENARIOS[name].promise} | {' | '.join(shown)} |\n"
    return text


def _together(marks: list[tuple[Way, str]]) -> str:
    """Return one cell for several ways in: one word if they agree."""
    if len({mark for _, mark in marks}) == 1:
        return marks[0][1]
    usual = max((mark for _, mark in marks), key=[mark for _, mark in marks].count)
    others = ", ".join(f"{way.name}: {mark}" for way, mark in marks if mark != usual)
    return f"{usual}; {others}"


def _rows(variant: str) -> dict[str, dict[str, Cell]]:
    rows: dict[str, dict[str, Cell]] = {}
    for cell in cells(variant):
        rows.setdefault(cell.scenario.name, {})[cell.way.name] = cell
    return rows


def _shown(cell: Cell, outcomes: Mapping[str, str] | None, notes: Notes) -> str:
    mark = mark_of(cell, notes)
    if outcomes is None or cell.why_not is not None:
        return mark
    expected = "passed" if mark == YES else "xfailed"
    outcome = outcomes.get(cell.id, NOT_RUN)
    return mark if outcome == expected else NOT_RUN if outcome in (NOT_RUN, "skipped") else FAILED
