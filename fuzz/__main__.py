"""`python -m fuzz`: fuzz every reader of untrusted input for a while, and say how to repeat what broke."""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import re
import sys

from fuzz import engine, with_atheris
from fuzz.targets import place, targets


def main(argv: list[str] | None = None) -> int:
    """Return 0 if nothing broke, 1 if something did."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SECONDS") or 300))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or random.randrange(1 << 30)))
    parser.add_argument("--only", help="only targets whose name contains this")
    has_atheris = importlib.util.find_spec("atheris") is not None
    chosen_engine = os.environ.get("ENGINE") or ("both" if has_atheris else "own")
    parser.add_argument("--engine", choices=("own", "atheris", "both"), default=chosen_engine)
    args = parser.parse_args(argv)
    print(f"fuzz: seed {args.seed}, {args.seconds:g} s, engine: {args.engine}")
    broken = 0
    with place() as where:
        chosen = [target for target in targets(where) if not args.only or args.only in target.name]
        share_s = args.seconds / len(chosen) / (2 if args.engine == "both" else 1)
        for target in chosen:
            if args.engine != "atheris":
                failure, tried, lines = engine.fuzz(target, args.seed, seconds=share_s)
                verdict = "BROKEN" if failure else "ok"
                print(f"{target.name:18} {tried:9,} inputs {lines:6,} lines     {verdict}", flush=True)
                if failure is not None:
                    broken += 1
                    print(f"{failure.why}\ninput: {failure.data!r}\n")
            if args.engine != "own":
                broken += not _by_atheris(target.name, share_s, args.seed)
    return 1 if broken else 0


def _by_atheris(name: str, seconds: float, seed: int) -> bool:
    is_fine, said = with_atheris.run(name, seconds, seed)
    runs, branches = (re.findall(rf"{word}:? (\d+)", said) for word in ("Done", "cov"))
    tried, reached = (int(found[-1]) if found else 0 for found in (runs, branches))
    # libFuzzer says so when it has read the seeds. Before that no input was tried, and none broke anything.
    verdict = "ok" if is_fine else "BROKEN" if "INITED" in said else "DID NOT START"
    print(f"{name:18} {tried:9,} inputs {reached:6,} branches  {verdict} (atheris)", flush=True)
    if not is_fine:
        print(said[-4000:])
    return is_fine


if __name__ == "__main__":
    sys.exit(main())
