"""
The demo as an animated picture: an SVG that needs no program but a browser, and no script.

Lines appear one after another at a pace for reading, and the picture scrolls as a terminal does. It begins
again at the end. Whoever asked their system for less motion, and programs that show no animation, see the
last screen.
"""

from __future__ import annotations

from html import escape
from typing import NamedTuple

COLUMNS, ROWS = 80, 26
_LETTER_PX, _LINE_PX, _EDGE_PX, _BAR_PX = 7.83, 17, 14, 26
_LINE_S, _PARAGRAPH_S, _END_S = 0.12, 1.1, 7.0

# What a line is about decides its colour; the first word that fits wins.
_COLOURS = (
    ("noclobber lost 0", "good"),
    ("$ ", "prompt"),
    ("== ", "strong"),
    ("refused. Its", "bad"),
    ('"error_type"', "bad"),
    ("landed", "good"),
    ("together", "strong"),
    ("lost", "plain"),
)
_STYLE = """\
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}
text{fill:#d6dae0;white-space:pre}
.good{fill:#7ddc8c}.bad{fill:#ff8f8f}.strong{fill:#fff;font-weight:bold}.prompt{fill:#8fc7ff}
"""


class Paragraph(NamedTuple):
    """What was said at once."""

    lines: tuple[str, ...]


def svg(paragraphs: list[Paragraph], title: str) -> str:
    """Return the picture of a terminal in which these were said one after another."""
    lines = [line for paragraph in paragraphs for line in paragraph.lines]
    starts = _starts(paragraphs)
    total_s = starts[-1] + _END_S if starts else _END_S
    width = round(COLUMNS * _LETTER_PX + 2 * _EDGE_PX)
    height = ROWS * _LINE_PX + _BAR_PX + 2 * _EDGE_PX
    shown = [_text(number, line) for number, line in enumerate(lines)]
    scrolled = max(0, len(lines) - ROWS) * _LINE_PX
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img" aria-label="{escape(title)}">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{_STYLE}{_animations(starts, total_s, scrolled)}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#14181f"/>',
            *(f'<circle cx="{18 + 18 * n}" cy="14" r="5" fill="#3a4250"/>' for n in range(3)),
            f'<clipPath id="screen"><rect x="0" y="{_BAR_PX}" width="{width}" '
            f'height="{height - _BAR_PX - _EDGE_PX // 2}"/></clipPath>',
            f'<g clip-path="url(#screen)"><g class="page" transform="translate(0,{-scrolled})">',
            *shown,
            "</g></g>",
            "</svg>",
            "",
        ]
    )


def _starts(paragraphs: list[Paragraph]) -> list[float]:
    """Return when each line appears."""
    starts, now_s = [], 0.3
    for paragraph in paragraphs:
        for _ in paragraph.lines:
            starts.append(now_s)
            now_s += _LINE_S
        now_s += _PARAGRAPH_S - _LINE_S
    return starts


def _animations(starts: list[float], total_s: float, scrolled: int) -> str:
    """Return the rules that show the lines and scroll, for those who do not mind motion."""
    rules = []
    for number, start_s in enumerate(starts):
        at = f"{100 * start_s / total_s:.2f}%"
        rules.append(f".l{number}{{animation:l{number} {total_s:.1f}s steps(1) infinite}}")
        rules.append(f"@keyframes l{number}{{0%{{opacity:0}}{at},to{{opacity:1}}}}")
    if scrolled:
        steps = ["0%{transform:translateY(0)}"]
        for number, start_s in enumerate(starts):
            if number >= ROWS:
                up = (number - ROWS + 1) * _LINE_PX
                steps.append(f"{100 * start_s / total_s:.2f}%{{transform:translateY({-up}px)}}")
        steps.append(f"to{{transform:translateY({-scrolled}px)}}")
        rules.append(f".page{{animation:page {total_s:.1f}s steps(1) infinite}}")
        rules.append(f"@keyframes page{{{''.join(steps)}}}")
    return "@media (prefers-reduced-motion:no-preference){\n" + "\n".join(rules) + "\n}\n"


def _text(number: int, line: str) -> str:
    style = next((name for word, name in _COLOURS if word in line), "plain")
    y = _BAR_PX + _EDGE_PX + number * _LINE_PX
    # `textLength` keeps columns in place whatever font the reader has.
    length = round(len(line) * _LETTER_PX, 1)
    if not line:
        return f'<text class="l{number}" y="{y}"/>'
    return (
        f'<text class="l{number} {style}" x="{_EDGE_PX}" y="{y}" textLength="{length}" '
        f'xml:space="preserve">{escape(line)}</text>'
    )
