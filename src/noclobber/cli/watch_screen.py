"""
What `noclobber watch` draws: the content of the live page, as lines that fill a terminal exactly.

Each part gets the same number of lines, and the events get the rest, the newest first: it is always on the
screen. Pure: from what `view.live` tells to lines, in any size.
"""

from __future__ import annotations

from typing import Any

from noclobber.cli.terminal import cells_wide, styled
from noclobber.text.visible import fold, visible

MIN_ROWS, MIN_COLUMNS = 4, 20
MAX_TROUBLE_LETTERS = 1000
_STYLES = {"write": "good", "merge": "good", "conflict": "bad", "race": "bad", "refused": "warn"}
_GROUPS = ("write", "merge", "conflict", "refused", "race")

Line = list[tuple[str, str]]
"""Pieces of text, each with its style."""


def screen(
    told: dict[str, Any], events: list[dict[str, Any]], columns: int, rows: int, passed_s: float
) -> list[str]:
    """Return exactly `rows` lines, none wider than `columns`. `passed_s`: since locks were looked at."""
    columns, rows = max(columns, MIN_COLUMNS), max(rows, MIN_ROWS)
    parts = {
        "needs a person": _attention(told),
        "at work now": _at_work(told),
        "locks": _locks(told, passed_s),
        "hottest files": _hottest(told),
    }
    lines = [_header(told), *_troubles(told, columns)[: rows // 4]]
    share = max(1, (rows - len(lines)) // 2 // len(parts))
    body = [line for title, found in parts.items() for line in _part(title, found, share)]
    lines += body[: max(0, rows - len(lines) - 3)]
    lines += [_event(event) for event in events] or [[("nothing is on record yet", "faint")]]
    lines = [*lines, *([[]] * rows)][: rows - 1]
    footer = [(f"{str(told.get('time', ''))[:19]} UTC   Ctrl-C ends", "faint")]
    return [_fit(line, columns) for line in [*lines, footer]]


def _part(title: str, found: list[Line], share: int) -> list[Line]:
    count = f" ({len(found)})" if len(found) > share else ""
    first = found[0] if found else [("none", "faint")]
    return [[(f"{title}{count}: ", "strong"), *first], *([("  ", ""), *line] for line in found[1:share])]


def _header(told: dict[str, Any]) -> Line:
    project, chain, totals = (told.get(name) or {} for name in ("project", "chain", "totals"))
    is_whole = chain.get("ok", True)
    count = f"  {_counted(totals.get('events', 0), 'event')}"
    if totals.get("counted_share", 1) < 1:
        count += f" (counting, {int(100 * totals['counted_share'])} %)"
    groups = totals.get("groups") or {}
    return [
        (visible(str(project.get("name", ""))), "strong"),
        ("  chain ok" if is_whole else "  CHAIN BROKEN", "good" if is_whole else "bad"),
        (count, ""),
        *((f"  {_counted(groups[name], name)}", _STYLES[name]) for name in _GROUPS if groups.get(name)),
        *_broken_checks(told),
        (f"  {visible(str(project.get('root', '')))}", "faint"),
    ]


def _broken_checks(told: dict[str, Any]) -> Line:
    findings = (told.get("checks") or {}).get("findings") or []
    return [(f"  {visible(each['name'])}: broken", "bad") for each in findings if not each["ok"]]


def _troubles(told: dict[str, Any], columns: int) -> list[Line]:
    gone = ["The project's folder is gone; this is the last that was known."] if told.get("gone") else []
    found = [*gone, *(told.get("feed_troubles") or []), *(told.get("state_troubles") or [])]
    texts = [f"! {visible(str(trouble)[:MAX_TROUBLE_LETTERS])}" for trouble in found]
    # Folded: what to do about it comes last.
    return [[(line, "bad")] for text in texts for line in fold(text, columns).split("\n")]


def _attention(told: dict[str, Any]) -> list[Line]:
    items = told.get("attention") or []
    return [[(visible(item["title"]), "warn"), (f"  {visible(item['detail'])}", "")] for item in items]


def _at_work(told: dict[str, Any]) -> list[Line]:
    return [
        [
            (
                visible(" ".join(filter(None, (row["agent"] or "somebody", row["host"], row["session"])))),
                "strong",
            ),
            (f"  {row['doing']}", {"writing": "good", "refused": "bad"}.get(row["doing"], "")),
            (f"  {visible(row['file'])}  {row['since'][11:19]}", ""),
        ]
        for row in told.get("at_work") or []
    ]


def _locks(told: dict[str, Any], passed_s: float) -> list[Line]:
    root = f"{(told.get('project') or {}).get('root', '')}/"
    lines: list[Line] = []
    for lock in told.get("locks") or []:
        left_s = lock.get("lease_remaining_s")
        left = "" if left_s is None else f"  {_duration(left_s - passed_s)} left"
        who = f"{str(lock['folder']).removeprefix(root)}  {lock.get('holder') or ''}"
        style = "good" if lock["state"] == "live" else "warn"
        lines.append([(visible(who), ""), (f"  {lock['state']}{left}", style)])
    return lines


def _hottest(told: dict[str, Any]) -> list[Line]:
    lines: list[Line] = []
    for row in told.get("hottest") or []:
        refused = row["conflict"] + row["refused"] + row["race"]
        writes = f"  {_counted(row['write'] + row['merge'], 'write')}"
        lines.append(
            [(visible(row["file"]), ""), (writes, "good"), (f" {refused} refused" if refused else "", "bad")]
        )
    return lines


def _event(event: dict[str, Any]) -> Line:
    group = event["group"]
    text = event["text"]
    if event["file"] and group != "lock":  # The file first: a narrow screen cuts the sentence.
        text = f"{event['file']}: {text}"
    return [
        (f"{event['time'][11:19]} ", "faint"),
        (f"{group:<9}", _STYLES.get(group, "faint")),
        (visible(text), ""),
    ]


def _counted(count: int, word: str) -> str:
    """Return `3 writes`, and `1 write`."""
    return f"{count:,} {word if count == 1 or word == 'refused' else f'{word}s'}"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{seconds} s"


def _fit(line: Line, columns: int) -> str:
    """Return the beginning of a line that fits; an ellipsis where something was left out."""
    fitting = []
    for text, style in line:
        short = text[:columns]  # A letter takes a cell, as a rule; measuring a megabyte is slow.
        if is_cut := len(short) < len(text) or cells_wide(short) > columns:
            while short and cells_wide(short) > columns - 1:
                short = short[:-1]
            short += "…" if columns else ""
        fitting.append(styled(short, style) if short else "")
        columns -= cells_wide(short)
        if is_cut:
            break
    return "".join(fitting)
