"""The scoreboard as a table for people, as JSON for programs, and as a chart for a page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from score.rounds import SHELL, TOOL, Score

CONTROLS = ("nobody", "touch")
BAR_PX, ROW_PX, LABEL_PX, WIDTH_PX = 300, 34, 210, 720


def as_json(scores: Sequence[Score], facts: dict[str, Any]) -> dict[str, Any]:
    """Return everything that was counted."""
    return {
        **facts,
        "scores": [
            {
                "subject": score.subject,
                "kind": score.kind,
                "version": score.version,
                "with_noclobber": score.guarded,
                "problem": score.problem,
                **score.totals(),
                "by_way": {
                    way: score.totals(way) for way in dict.fromkeys(each.way for each in score.tallies)
                },
                "tallies": [each._asdict() for each in score.tallies],
            }
            for score in scores
        ],
    }


def as_markdown(scores: Sequence[Score], facts: dict[str, Any]) -> str:
    """Return the page that the documentation has."""
    lines = [
        "# What is lost: the scoreboard",
        "",
        f"{summary(scores)} Measured on {facts['date']} with noclobber {facts.get('noclobber', '')} on {facts.get('platform', '')}, "
        f"seed {facts['seed']}, {facts['repetitions']} rounds of each kind. `make score` does it again; [how it is counted](#how-it-is-counted) is below.",
        "",
        "![Updates that were lost](score.svg)",
        "",
        "| | writes with | version | updates | lost: alone → **with noclobber** | falsely refused | calls to recover |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(score.subject for score in scores):
        alone, guarded = (_find(scores, name, guarded=flag) for flag in (False, True))
        for way in (TOOL, SHELL):
            row = _row(name, way, alone, guarded)
            if row:
                lines.append(row)
    problems = [score for score in scores if score.problem]
    if problems:
        lines += ["", "Not played, or not to the end:", ""]
        lines += [
            f"- {each.subject}{', with noclobber' if each.guarded else ''}: {each.problem}"
            for each in problems
        ]
    lines += ["", *_METHOD]
    return "\n".join(lines) + "\n"


def summary(scores: Sequence[Score]) -> str:
    """Return one sentence about all of them."""
    (lost, made), (still_lost, guarded) = (_of_rivals(scores, guarded=flag) for flag in (False, True))
    return f"Alone, {lost} of {made} updates by others were lost; with noclobber {still_lost} of {guarded}."


def _of_rivals(scores: Sequence[Score], *, guarded: bool) -> tuple[int, int]:
    """Of all updates that rivals made: how many were lost, and how many there were."""
    played = [tally for score in scores if score.guarded == guarded for tally in score.tallies]
    return sum(each.lost for each in played), sum(each.rival not in CONTROLS for each in played)


_METHOD = (
    "## How it is counted",
    "",
    "A scripted model reads a file. A rival changes it: another agent's tool, an editor that saves, a formatter, `git checkout` of another",
    "branch, a shell script that appends. The model writes back what it had read, with one line of its own, with the subject's write",
    "tool or, in coding agents, with a heredoc in its shell. If its line is not in the file then, it was refused: it reads again and",
    "tries again, up to four times. An update that was made and is not in the file at the end is *lost*. In two more kinds of round",
    "nobody writes, or only the modification time changes: a refusal there is *false*. *Calls to recover* are tool calls after a true",
    "refusal, on average.",
    "",
    "The programs are the real ones, from their registries; only the model is scripted. Nothing that a tool says is believed: the file is",
    "looked at. `make score ONLY=claude-code,deepagents SEED=7 REPETITIONS=3` plays some of it, and writes into build/score. To score a build of your own, name its program:",
    "`NOCLOBBER_E2E_CLAUDE_CODE=/path/to/claude make score ONLY=claude-code`.",
)


def _find(scores: Sequence[Score], name: str, *, guarded: bool) -> Score | None:
    return next((each for each in scores if each.subject == name and each.guarded == guarded), None)


def _row(name: str, way: str, alone: Score | None, guarded: Score | None) -> str:
    cells = [each.totals(way) if each is not None and each.tallies else None for each in (alone, guarded)]
    if not any(cell and cell["rounds"] for cell in cells):
        return ""

    def pair(key: str) -> str:
        left, right = (str(cell[key]) if cell else "–" for cell in cells)
        return f"{left} → **{right}**"

    version = next((each.version for each in (alone, guarded) if each is not None and each.version), "")
    return f"| {name} | {way} | {version} | {pair('updates')} | {pair('lost')} | {pair('falsely_refused')} | {pair('recovery_calls')} |"


def as_svg(scores: Sequence[Score], facts: dict[str, Any]) -> str:
    """Return a chart: for each subject, which share of the updates was lost, alone and with noclobber."""
    names = [
        name
        for name in dict.fromkeys(each.subject for each in scores)
        if _share(scores, name, guarded=False) is not None
    ]
    height = 70 + ROW_PX * len(names)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH_PX} {height}" role="img" font-family="sans-serif" font-size="13">',
        f"<title>Updates that were lost, {escape(str(facts['date']))}</title>",
        f'<rect width="{WIDTH_PX}" height="{height}" fill="#ffffff"/>',
        '<text x="16" y="26" font-size="16" fill="#1f2328">Updates that were lost</text>',
        f'<text x="16" y="46" fill="#59636e">grey: alone; green: with noclobber; {escape(str(facts["date"]))}</text>',
    ]
    for number, name in enumerate(names):
        top = 62 + ROW_PX * number
        parts.append(f'<text x="16" y="{top + 17}" fill="#1f2328">{escape(name)}</text>')
        for offset, guarded, colour in ((0, False, "#818b98"), (13, True, "#1a7f37")):
            share = _share(scores, name, guarded=guarded)
            if share is None:
                continue
            width = max(2, round(BAR_PX * share))
            parts.append(
                f'<rect x="{LABEL_PX}" y="{top + offset}" width="{width}" height="11" fill="{colour}"/>'
            )
            text = f"{100 * share:.0f} %"
            parts.append(
                f'<text x="{LABEL_PX + width + 6}" y="{top + offset + 10}" font-size="11" fill="#1f2328">{text}</text>'
            )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _share(scores: Sequence[Score], name: str, *, guarded: bool) -> float | None:
    """Of the updates that rivals made, how many were lost."""
    found = _find(scores, name, guarded=guarded)
    if found is None or not found.tallies:
        return None
    lost, made = _of_rivals([found], guarded=guarded)
    return lost / made if made else None
