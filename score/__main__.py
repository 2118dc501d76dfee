"""
`make score`: play every subject alone and with noclobber; print the table, write page, JSON and chart.

    python -m score [--only NAME,…] [--seed N] [--repetitions N] [--write FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import noclobber
from score import frameworks, hosts, mcp_servers
from score.report import as_json, as_markdown, as_svg
from score.rounds import Score

PROJECT = Path(__file__).parents[1]


def subjects() -> dict[str, Callable[[int, int, bool], Score]]:
    """Return every subject by name, with the function that plays it."""
    found: dict[str, Callable[[int, int, bool], Score]] = {}
    for name in hosts.SUBJECTS:
        found[name] = lambda seed, times, guarded, name=name: hosts.score(name, seed, times, guarded=guarded)  # type: ignore[misc]
    for name in frameworks.SUBJECTS:
        found[name] = lambda seed, times, guarded, name=name: _framework(name, seed, times, guarded)  # type: ignore[misc]
    for name in mcp_servers.SUBJECTS:
        found[name] = lambda seed, times, guarded, name=name: mcp_servers.score(
            name, seed, times, guarded=guarded
        )  # type: ignore[misc]
    return found


def _framework(name: str, seed: int, repetitions: int, guarded: bool) -> Score:
    from tests.frameworks.__main__ import environment

    try:
        python = environment(name)
    except (OSError, subprocess.SubprocessError) as error:
        return Score(name, "framework", "", guarded, (), f"its environment could not be made: {error}")
    return frameworks.score(name, python, seed, repetitions, guarded=guarded)


def main(argv: list[str] | None = None) -> int:
    """Play, and say what was found. Ends with 1 if anything was lost with noclobber."""
    parser = argparse.ArgumentParser(prog="python -m score")
    parser.add_argument("--only", default=os.environ.get("ONLY", ""), help="names, with commas between them")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED", 1)))
    parser.add_argument("--repetitions", type=int, default=int(os.environ.get("REPETITIONS", 2)))
    parser.add_argument(
        "--write",
        metavar="FOLDER",
        help="write score.md, score.json and score.svg there; of a part (--only), into build/score",
    )
    args = parser.parse_args(argv)
    known = subjects()
    wanted = [name for name in args.only.split(",") if name] or list(known)
    if unknown := [name for name in wanted if name not in known]:
        print(f"score: there is no {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    scores: list[Score] = []
    for name in wanted:
        for guarded in (False, True):
            began_s = time.monotonic()
            scores.append(known[name](args.seed, args.repetitions, guarded))
            found = scores[-1]
            told, how = found.problem or json.dumps(found.totals()), "with noclobber" if guarded else "alone"
            print(f"{name}, {how} ({time.monotonic() - began_s:.0f} s): {told}", flush=True)
    facts = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "seed": args.seed,
        "repetitions": args.repetitions,
        "noclobber": noclobber.__version__,
        "platform": f"{os.uname().sysname} {'.'.join(os.uname().release.split('.')[:2])}",
    }
    page = as_markdown(scores, facts)
    print(f"\n{page}")
    if args.write:
        # A part of it must not replace the page of all that the documentation quotes.
        folder = Path(args.write) if len(wanted) == len(known) else PROJECT / "build" / "score"
        folder.mkdir(parents=True, exist_ok=True)
        print(f"written to {folder}")
        (folder / "score.md").write_text(page)
        (folder / "score.json").write_text(json.dumps(as_json(scores, facts), indent=1) + "\n")
        (folder / "score.svg").write_text(as_svg(scores, facts))
    lost = [score for score in scores if score.guarded and score.totals()["lost"]]
    for score in lost:
        print(f"score: with noclobber, {score.subject} still lost updates", file=sys.stderr)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
