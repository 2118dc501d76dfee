"""`python -m torture`: run the rounds, print the report, judge. Six processes, but for the counter."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time

from noclobber.demo import arena, outsiders
from noclobber.demo.accounting import Account
from torture import counter, lock, mounts, plan, power, report, several

LEVELS = ("lease+exchange", "exchange", "plain")


def main(argv: list[str] | None = None) -> int:
    """Return 0 if every bar was met, 1 if not, 2 if called wrongly."""
    args = _arguments(argv)
    if args.level:
        os.environ["NOCLOBBER_LEVEL"] = args.level
    begun_s = time.monotonic()
    level = os.environ.get("NOCLOBBER_LEVEL") or "the strongest available"
    print(f"torture: seed {args.seed}, {args.seconds:g} s, level: {level}")
    ok = True
    if args.power:
        ok = power.run(args)
    elif args.lock:
        ok = lock.run(args)
    else:
        ok = _files(args)
        if not args.kind:
            ok = several.run(args) and ok
            ok = mounts.run(args) and ok
        if not args.kind and not args.no_counter:
            ok = counter.run(args) and ok
    verdict = "every bar was met" if ok else f"BARS WERE MISSED; the failing seed is {args.seed}"
    print(f"\n{verdict} ({time.monotonic() - begun_s:.0f} s)")
    return 0 if ok else 1


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m torture", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=float(os.environ.get("SECONDS") or plan.DEFAULT_SECONDS)
    )
    parser.add_argument(
        "--seed", type=int, default=None, help="default: SEED from the environment, or a new one"
    )
    parser.add_argument(
        "--kind", action="append", choices=list(outsiders.KINDS), help="only this kind; repeatable"
    )
    parser.add_argument("--level", choices=LEVELS, help="force a weaker level, to see what it promises")
    parser.add_argument(
        "--flushing",
        choices=("none", "some", "all"),
        default="some",
        help="which agents have every write flushed to the disk (default: every other one)",
    )
    parser.add_argument("--lock", action="store_true", help="torture the deliverable lock instead")
    parser.add_argument("--power", action="store_true", help="cut the power instead; needs root")
    parser.add_argument("--cuts", type=int, default=int(os.environ.get("CUTS") or power.DEFAULT_CUTS))
    parser.add_argument(
        "--filesystem",
        action="append",
        choices=[each.name for each in power.FILESYSTEMS],
        help="cut only on this one; repeatable",
    )
    parser.add_argument("--no-counter", action="store_true", help="leave out the 64 agents with one counter")
    parser.add_argument("--folder", help="work below this folder, to try its filesystem")
    parser.add_argument(
        "--keep", action="store_true", help="keep the folders and logs of rounds that missed a bar"
    )
    args = parser.parse_args(argv)
    if args.seconds <= 0:
        parser.error("--seconds must be more than 0")
    if args.seed is None:
        args.seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1_000_000))
    return args


def _files(args: argparse.Namespace) -> bool:
    print(f"\n{report.heading()}", flush=True)
    complaints: list[str] = []
    outside_updates = 0
    for name, kind, round_ in plan.rounds(args.seconds, args.seed, args.kind, flushing=args.flushing):
        if reason := outsiders.unavailable(kind):
            print(f"{name:<34}skipped: {reason}", flush=True)
            continue
        account, folder = _one_round(args, round_)
        print(report.line(name, account), flush=True)
        if outsiders.KINDS[kind].changes_bytes:
            outside_updates += account.updates
        missed = plan.missed_bars(account, forced_level=os.environ.get("NOCLOBBER_LEVEL"))
        if missed:
            complaints.append(report.explanation(name, account, missed, args.seed, kind))
        if missed and args.keep:
            complaints.append(f"    kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{outside_updates} outside updates in all\n\n{report.LEGEND}")
    is_full = args.seconds >= plan.FULL_RUN_SECONDS and not args.kind
    if is_full and outside_updates < plan.OUTSIDE_UPDATES_BAR:
        complaints.append(f"MISSED: {outside_updates} outside updates, fewer than {plan.OUTSIDE_UPDATES_BAR}")
    if complaints:
        print("\n" + "\n".join(complaints))
    return not complaints


def _one_round(args: argparse.Namespace, round_: arena.Round) -> tuple[Account, str]:
    folder = tempfile.mkdtemp(prefix="noclobber-torture-", dir=args.folder)
    return arena.run(os.path.join(folder, "round"), round_)[0], folder


if __name__ == "__main__":
    sys.exit(main())
