"""`noclobber demo`: the story and the numbers, on a scratch folder, in less than half a minute."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from typing import TYPE_CHECKING

from noclobber.cli import EXIT_NO, EXIT_OK
from noclobber.cli.clean_output import controls
from noclobber.cli.terminal import columns_wide
from noclobber.text.visible import fold

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from noclobber.demo.numbers import Numbers
    from noclobber.demo.story import Told

EXAMPLES = """\
examples:
  noclobber demo                   the story, then the numbers
  noclobber demo --seconds 60      longer, for more reliable numbers
  noclobber demo --json | jq .     for programs
  noclobber demo --record demo.svg     a picture of it, animated
"""

SECONDS = 18.0
MOST_SECONDS = 600.0


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--seconds", type=_seconds, default=SECONDS, help="how long to count (default: 18)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random choices (default: 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--record", metavar="FILE", help="also draw it there, as an animated SVG")
    parser.add_argument("--keep", action="store_true", help="keep the scratch folder, and say where it is")


def _seconds(text: str) -> float:
    import argparse

    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"must be a number above 0 and at most {MOST_SECONDS:g}")
    return value


def run(args: Namespace) -> int:
    """Run the demo; exit code 0 if noclobber lost nothing, 1 if it did."""
    from noclobber.demo import numbers, story
    from noclobber.demo.progress_bar import Bar

    scratch = tempfile.mkdtemp(prefix="noclobber-demo-")
    try:
        recorder = _Recorder(quiet=args.json)
        said = recorder.say
        said("== The story ==\n")
        home = os.path.join(scratch, "story")
        os.mkdir(home)
        told = story.tell(home, said)
        said("\n== The numbers ==\n")
        said("Two agents keep changing files that somebody else is writing to as well:")
        said("first with plain writes, then through noclobber.\n")
        with Bar(open(os.devnull, "w") if args.json else controls()) as bar:
            counted = numbers.measure(
                os.path.join(scratch, "numbers"), seconds=args.seconds, seed=args.seed, progress=bar
            )
        if args.json:
            print(json.dumps(_as_json(told, counted), indent=2, ensure_ascii=False))
        _tell_numbers(counted, said, columns_wide())
        if args.record:
            recorder.draw(args.record, scratch, counted)
    finally:
        if args.keep:
            print(f"Kept: {scratch}", file=sys.stderr)
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    return EXIT_OK if counted.is_clean else EXIT_NO


class _Recorder:
    """Says what the demo says, and remembers it for a picture."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._said: list[str] = []

    def say(self, text: str) -> None:
        """Print a paragraph, folded to the terminal."""
        self._said.append(text)
        if not self._quiet:
            print(fold(text, columns_wide()), flush=True)

    def draw(self, path: str, scratch: str, counted: Numbers) -> None:
        """Draw everything that was said, for a terminal of the picture's own width."""
        from noclobber.demo.recording import COLUMNS, Paragraph, svg

        cut = next(number for number, text in enumerate(self._said) if "numbers ==" in text)
        said = [*self._said[: cut + 3]]
        _tell_numbers(counted, said.append, COLUMNS)
        paragraphs = [Paragraph(("$ noclobber demo", ""))]
        for text in said:
            plain = fold(text.replace(scratch, "/tmp/demo"), COLUMNS)  # noqa: S108 - shown, not used
            paragraphs.append(Paragraph(tuple(plain.split("\n"))))
        totals = counted.totals
        title = f"Plain writes lost {totals.lost_plain} of {totals.made_plain}; noclobber {totals.lost}."
        with open(path, "w", encoding="utf-8") as file:
            file.write(svg(paragraphs, title))


def _tell_numbers(counted: Numbers, say: Callable[[str], None], columns: int) -> None:
    from noclobber.demo.numbers import table

    totals = counted.totals
    say(f"\n{table(counted, columns)}\n")
    for fault in counted.faults:
        say(f"fault: {fault}")
    say("lost: completed updates that an agent overwrote without having seen them.")
    say("kept: not in the file, but kept aside and reported.")
    say("refused: the agent had to read again.")
    say(f"levels: {', '.join(totals.levels)}. `noclobber doctor` says what each promises here.")
    share = totals.lost_plain / max(1, totals.made_plain)
    say(
        f"\nPlain writes lost {totals.lost_plain} of {totals.made_plain} updates ({share:.0%});"
        f" noclobber lost {totals.lost} of {totals.made}."
    )


def _as_json(told: Told, counted: Numbers) -> dict[str, object]:
    return {
        "story": told._asdict(),
        "numbers": {
            "rows": [row._asdict() for row in counted.rows],
            "totals": counted.totals._asdict(),
            "faults": counted.faults,
        },
    }
