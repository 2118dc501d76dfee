"""`python -m fuzz`: fuzz every reader of untrusted input for a while, and say how to repeat what broke."""

from __future__ import annotations

import argparse
import os
import random
import sys

from fuzz import engine
from fuzz.targets import place, targets


def main(argv: list[str] | None = None) -> int:
    """Return 0 if nothing broke, 1 if something did."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SECONDS") or 300))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or random.randrange(1 << 30)))
    parser.add_argument("--only", help="only targets whose name contains this")
    args = parser.parse_args(argv)
    print(f"fuzz: seed {args.seed}, {args.seconds:g} s")
    broken = 0
    with place() as where:
        chosen = [target for target in targets(where) if not args.only or args.only in target.name]
        for target in chosen:
            failure, tried, lines = engine.fuzz(target, args.seed, seconds=args.seconds / len(chosen))
            print(
                f"{target.name:18} {tried:8,} inputs {lines:6,} lines  {'BROKEN' if failure else 'ok'}",
                flush=True,
            )
            if failure is not None:
                broken += 1
                print(f"{failure.why}\ninput: {failure.data!r}\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
