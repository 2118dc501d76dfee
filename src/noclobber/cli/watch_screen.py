"""
What `noclobber watch` draws: the content of the live page, as lines that fill a terminal exactly.

The newest event is always on the screen: it is at the top of its part, and the other parts get what they need
out of the rest. A low terminal has one line for each part, a high one a list for each, a wide one two lists
beside each other. Pure: from what `view.live` tells to lines, in any size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from noclobber.cli.terminal import cells_wide, styled
from noclobber.text.fold import fold
from noclobber.text.visible import visible

LOW_ROWS, SENTENCE_COLUMNS, WIDE_COLUMNS = 20, 100, 110
LEAST_ROWS, LEAST_COLUMNS = 4, 20
SIGNS = " ▁▂▃▄▅▆▇█"
LONGEST_TROUBLE = 1000
_GAP = 3
_STYLES = {"write": "good", "merge": "good", "conflict": "bad", "race": "bad", "refused": "warn"}
_GROUPS = (
    ("write", "writes"),
    ("merge", "merges"),
    ("conflict", "conflicts"),
    ("refused", "refused"),
    ("race", "races"),
)

Piece = tuple[str, str]
"""Text, and its style."""
Line = list[Piece]


class Part(NamedTuple):
    """One part of the screen."""

    title: str
    rows: list[Line]
    empty: str


def screen(
    told: dict[str, Any], events: list[dict[str, Any]], columns: int, rows: int, passed_s: float
) -> list[str]:
    """Return exactly `rows` lines, none wider than `columns`. `passed_s`: since locks were looked at."""
    columns, rows = max(columns, LEAST_COLUMNS), max(rows, LEAST_ROWS)
    head = [_header(told), *_troubles(told, columns)[: max(0, rows // 4)]]
    parts = [_needs(told), _work(told), _locks(told, passed_s), _hot(told)]
    room = rows - len(head) - 1
    if rows < LOW_ROWS:
        body = [*_short(parts)[: max(0, room - 3)], _hour(told, columns)][: max(0, room - 2)]
    else:
        # Events get half, and what they do not need goes to the lists.
        body = _lists(parts, columns, max((room - 1) // 2, room - 3 - len(events)))
        body = [*body, _hour(told, columns)]
    left = room - len(body)
    drawn = [*head, *body, *_event_lines(events, columns, left)]
    drawn += [[] for _ in range(rows - 1 - len(drawn))]
    footer: Line = [(f"{str(told.get('time', ''))[:19]} UTC   Ctrl-C ends", "faint")]
    return [_fitted(line, columns) for line in [*drawn[: rows - 1], footer]]


# -- the parts ----------------------------------------------------------------------------------------------


def _header(told: dict[str, Any]) -> Line:
    project, chain, totals = (told.get(name) or {} for name in ("project", "chain", "totals"))
    line: Line = [(visible(str(project.get("name", ""))), "strong")]
    is_whole = chain.get("ok", True)
    line.append(("  chain ok" if is_whole else "  CHAIN BROKEN", "good" if is_whole else "bad"))
    count = f"  {_counted(int(totals.get('events', 0)), 'events')}"
    if totals.get("counted_share", 1) < 1:
        count += f" (counting, {int(100 * totals['counted_share'])} %)"
    line.append((count, ""))
    findings = (told.get("checks") or {}).get("findings") or []
    level = next((each for each in findings if each["name"] == "level"), None)
    if level is not None:
        line.append((f"  {visible(level['detail'].split(':')[0])}", "good" if level["ok"] else "bad"))
    hooks = [
        each
        for each in findings
        if each["name"].startswith("hooks of") and not each["detail"].startswith("not installed")
    ]
    broken = sum(not each["ok"] for each in hooks)
    if hooks:
        word = f"  hooks: {broken} of {len(hooks)} broken" if broken else f"  hooks: {len(hooks)} ok"
        line.append((word, "bad" if broken else "good"))
    line.append((f"  {visible(str(project.get('root', '')))}", "faint"))
    return line


def _troubles(told: dict[str, Any], columns: int) -> list[Line]:
    gone = ["The project's folder is gone; this is the last that was known."] if told.get("gone") else []
    found = [*gone, *(told.get("feed_troubles") or []), *(told.get("state_troubles") or [])]
    texts = [f"! {visible(str(trouble)[:LONGEST_TROUBLE])}" for trouble in found]
    # Folded: what to do about it comes last.
    return [[(line, "bad")] for text in texts for line in fold(text, columns).split("\n")]


def _needs(told: dict[str, Any]) -> Part:
    items = told.get("attention") or []
    rows: list[Line] = [
        [(visible(item["title"]), "warn"), (f"  {visible(item['detail'])}", "")] for item in items
    ]
    return Part("needs a person", rows, "nothing waits for you")


def _work(told: dict[str, Any]) -> Part:
    rows: list[Line] = []
    for row in told.get("at_work") or []:
        who = " ".join(part for part in (row["agent"] or "somebody", row["host"], row["session"]) if part)
        style = {"writing": "good", "refused": "bad"}.get(row["doing"], "")
        rows.append(
            [
                (visible(who), "strong"),
                (f"  {row['doing']}", style),
                (f"  {visible(row['file'])}  {row['since'][11:19]}", ""),
            ]
        )
    return Part("at work now", rows, "no agent in the last ten minutes")


def _locks(told: dict[str, Any], passed_s: float) -> Part:
    root = f"{(told.get('project') or {}).get('root', '')}/"
    rows: list[Line] = []
    for lock in told.get("locks") or []:
        left_s = lock.get("lease_remaining_s")
        left = "" if left_s is None else f"  {_lasting(left_s - passed_s)} left"
        folder = visible(str(lock["folder"]).removeprefix(root))
        style = "good" if lock["state"] == "live" else "warn"
        rows.append(
            [
                (folder, ""),
                (f"  {visible(str(lock.get('holder') or ''))}", "strong"),
                (f"  {lock['state']}{left}", style),
            ]
        )
    return Part("locks", rows, "none")


def _hot(told: dict[str, Any]) -> Part:
    rows: list[Line] = []
    for row in told.get("hottest") or []:
        refused = row["conflict"] + row["refused"] + row["race"]
        rows.append(
            [
                (visible(row["file"]), ""),
                (f"  {_counted(row['write'] + row['merge'], 'writes')}", "good"),
                (f" {refused} refused" if refused else "", "bad"),
            ]
        )
    return Part("hottest files", rows, "none yet")


def _hour(told: dict[str, Any], columns: int) -> Line:
    minutes = told.get("minutes") or []
    sums = [sum(minute[name] for name, _ in _GROUPS) for minute in minutes]
    groups = (told.get("totals") or {}).get("groups") or {}
    words: Line = [
        (f"  {_counted(groups.get(name, 0), word)}", _STYLES.get(name, ""))
        for name, word in _GROUPS
        if groups.get(name)
    ]
    space = columns - sum(cells_wide(text) for text, _ in words) - len("hour ")
    sums = sums[-max(0, min(60, space)) :] if space > 0 else []
    most = max([1, *sums])
    # A minute in which anything happened is never drawn as one in which nothing did.
    bar = "".join(SIGNS[0 if not count else max(1, round(count / most * 8))] for count in sums)
    return [("hour ", "strong"), (bar, ""), *words]


def _counted(count: int, word: str) -> str:
    """Return `3 writes`, and `1 write`."""
    return f"{count:,} {word.removesuffix('s') if count == 1 else word}"


def _event_lines(events: list[dict[str, Any]], columns: int, room: int) -> list[Line]:
    if room <= 0:
        return []
    lines: list[Line] = []
    if room > 3:
        lines.append([("events, the newest first", "strong")])
    for event in events[: room - len(lines)]:
        style = _STYLES.get(event["group"], "faint")
        text = event["text"]
        # A long sentence would be cut before the file's name. That of a lock is short.
        if columns < SENTENCE_COLUMNS and event["file"] and event["group"] != "lock":
            word = {"write": "over", "merge": "with"}.get(event["group"], "changed by")
            over = f", {word} {event['over']}" if event["over"] else ""
            text = f"{event['file']}  {event['who']['agent'] or 'somebody'}{over}"
        lines.append(
            [(f"{event['time'][11:19]} ", "faint"), (f"{event['group']:<9}", style), (visible(text), "")]
        )
    if not events:
        lines.append([("nothing is on record yet", "faint")])
    return lines[:room]


# -- putting them together ----------------------------------------------------------------------------------


def _short(parts: list[Part]) -> list[Line]:
    """One line for each part that has something to say."""
    lines: list[Line] = []
    for part in parts:
        if part.rows:
            count = f" ({len(part.rows)})" if len(part.rows) > 1 else ""
            lines.append([(f"{part.title}{count}: ", "strong"), *part.rows[0]])
    return lines


def _lists(parts: list[Part], columns: int, most_rows: int) -> list[Line]:
    if columns < WIDE_COLUMNS:
        shares = _shares(parts, most_rows)
        return [line for part, share in zip(parts, shares, strict=True) for line in _listed(part, share)][
            :most_rows
        ]
    width = (columns - _GAP) // 2
    needs, work, locks, hot = parts
    left, right = (
        [
            line
            for part, share in zip(side, _shares(side, most_rows), strict=True)
            for line in _listed(part, share)
        ]
        for side in ([needs, locks], [work, hot])
    )
    lines: list[Line] = []
    for at in range(min(most_rows, max(len(left), len(right)))):
        one, other = (side[at] if at < len(side) else [] for side in (left, right))
        cut = _cut(one, width)
        blank = " " * (width - sum(cells_wide(text) for text, _ in cut) + _GAP)
        lines.append([*cut, (blank, ""), *_cut(other, width)])
    return lines


def _shares(parts: list[Part], most_rows: int) -> list[int]:
    """How many lines each part gets: an even share, and what one does not need goes to the others."""
    wanted = [1 + len(part.rows) if part.rows else 1 for part in parts]
    shares = [min(2, want) for want in wanted]
    while sum(shares) < most_rows and shares != wanted:
        at = min((at for at in range(len(parts)) if shares[at] < wanted[at]), key=lambda at: shares[at])
        shares[at] += 1
    return shares


def _listed(part: Part, share: int) -> list[Line]:
    """A title and rows, at most `share` lines; what does not fit is counted."""
    if not part.rows:
        return [[(f"{part.title}: ", "strong"), (part.empty, "faint")]]
    room = share - 1
    lines: list[Line] = [[(part.title, "strong")]]
    if len(part.rows) <= room:
        return [*lines, *([("  ", ""), *row] for row in part.rows)]
    lines = [[(f"{part.title} ({len(part.rows)})", "strong")]]
    return [*lines, *([("  ", ""), *row] for row in part.rows[:room])]


def _cut(line: Line, columns: int) -> Line:
    """Return the beginning of a line that fits; an ellipsis where something was left out."""
    cut: Line = []
    left = columns
    for text, style in line:
        # Marks that take no cell are rare: what is longer cannot fit, and measuring a megabyte is slow.
        short = text[: 4 * left + 4]
        wide = cells_wide(short)
        if wide <= left and len(short) == len(text):
            cut.append((text, style))
            left -= wide
            continue
        if left > 0:
            cut.append((f"{_beginning(short, left - 1)}…", style))
        break
    return cut


def _beginning(text: str, cells: int) -> str:
    """Return as much of a text's beginning as fits into that many cells."""
    taken = 0
    for at, letter in enumerate(text):
        taken += cells_wide(letter)
        if taken > cells:
            return text[:at]
    return text


def _fitted(line: Line, columns: int) -> str:
    return "".join(styled(text, style) for text, style in _cut(line, columns) if text)


def _lasting(seconds: float) -> str:
    seconds = max(0, round(seconds))
    return (
        f"{seconds} s"
        if seconds < 60
        else f"{seconds // 60} min"
        if seconds < 3600
        else f"{seconds // 3600} h {seconds % 3600 // 60} min"
    )
