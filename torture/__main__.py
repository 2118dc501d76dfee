"""`python -m torture`: run the rounds, print the report, judge. Six processes, but for the counter."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

from torture import (
    after_crash,
    arena,
    bars,
    compiled,
    counter,
    lock,
    mounts,
    outsiders,
    plan,
    power,
    report,
    several,
    two_mounts,
)
from torture.accounting import Account

LEVELS = ("lease+exchange", "exchange", "plain")


def main(argv: list[str] | None = None) -> int:
    """Return 0 if every bar was met, 1 if not, 2 if called wrongly."""
    args = _arguments(argv)
    if args.level:
        os.environ["NOCLOBBER_LEVEL"] = args.level
    begun_s = time.monotonic()
    level = os.environ.get("NOCLOBBER_LEVEL") or "the strongest available"
    print(f"torture: seed {args.seed}, {args.seconds:g} s, level: {level}")
    with tempfile.TemporaryDirectory(prefix="noclobber-torture-") as folder:
        if reason := compiled.compile_into(folder):
            print(f"outside writers in C: skipped: {reason}")
        ok = _all(args, folder) if args.all else _part(args)
    verdict = "every bar was met" if ok else f"BARS WERE MISSED; the failing seed is {args.seed}"
    print(f"\n{verdict} ({time.monotonic() - begun_s:.0f} s)")
    return 0 if ok else 1


def _part(args: argparse.Namespace) -> bool:
    if args.power:
        return power.run(args)
    if args.lock:
        return lock.run(args)
    if args.crash:
        return after_crash.run(args)
    ok = _files(args)
    if not args.kind and not args.rounds_only:
        ok = several.run(args) and ok
        if not args.no_counter:
            ok = counter.run(args) and ok
    return ok


def _all(args: argparse.Namespace, folder: str) -> bool:
    """Every part on every filesystem, and then what was reached."""
    args.figures = args.figures or os.path.join(folder, "figures")
    with open(args.figures, "w"):
        pass
    ok = mounts.run(args)
    ok = two_mounts.run(args) and ok
    for name, part in (("several", several.run), ("counter", counter.run)):
        is_met = part(args)
        bars.note(args.figures, name, is_met=is_met)
        ok = is_met and ok
    with open(os.path.join(folder, "locks"), "w+") as said:
        # Beside the rest: it takes as long as all of that.
        locks = subprocess.Popen(
            [sys.executable, "-m", "torture", "--lock", "--seed", str(args.seed)], stdout=said, stderr=said
        )
        ok = after_crash.run(args) and ok
        ok = power.run(args) and ok
        is_met = locks.wait() == 0
        bars.note(args.figures, "lock", is_met=is_met)
        ok = is_met and ok
        said.seek(0)
        print(f"\n{said.read()}")
    found = bars.of(bars.read(args.figures), seconds=args.seconds, cuts=args.cuts, kills=args.kills)
    print(f"\n{bars.table(found)}")
    return ok and all(bar.is_met is not False for bar in found)


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
    parser.add_argument(
        "--all", action="store_true", help="every part, on every filesystem that can be mounted; needs root"
    )
    parser.add_argument("--lock", action="store_true", help="torture the deliverable lock instead")
    parser.add_argument("--crash", action="store_true", help="kill guards, and save after them, instead")
    parser.add_argument(
        "--kills", type=int, default=int(os.environ.get("KILLS") or after_crash.DEFAULT_KILLS)
    )
    parser.add_argument("--power", action="store_true", help="cut the power instead; needs root")
    parser.add_argument("--cuts", type=int, default=int(os.environ.get("CUTS") or power.DEFAULT_CUTS))
    parser.add_argument(
        "--filesystem",
        action="append",
        choices=[each.name for each in power.FILESYSTEMS],
        help="cut only on this one; repeatable",
    )
    parser.add_argument("--no-counter", action="store_true", help="leave out the 64 agents with one counter")
    parser.add_argument("--rounds-only", action="store_true", help="the rounds of one file, nothing else")
    parser.add_argument("--folder", help="work below this folder, to try its filesystem")
    parser.add_argument("--filesystem-name", default="here", help="what the figures call it")
    parser.add_argument("--figures", help="append the figures to this file, a JSON line for each round")
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
    probing = tempfile.mkdtemp(prefix="noclobber-torture-", dir=args.folder)
    reasons = {kind: outsiders.unavailable(kind, probing) for kind in args.kind or outsiders.KINDS}
    shutil.rmtree(probing)
    able = [kind for kind, reason in reasons.items() if reason is None]
    for kind, reason in reasons.items():
        if reason is not None:
            print(f"{outsiders.KINDS[kind].says:<34}skipped: {reason}", flush=True)
    forced_level = os.environ.get("NOCLOBBER_LEVEL")
    for name, kind, round_ in plan.rounds(args.seconds, args.seed, able, flushing=args.flushing):
        account, folder = _one_round(args, round_)
        print(report.line(name, account), flush=True)
        if outsiders.KINDS[kind].changes_bytes:
            outside_updates += account.updates
        missed = plan.missed_bars(account, forced_level=forced_level)
        bars.note(
            args.figures,
            "round",
            filesystem=args.filesystem_name,
            kind=kind,
            changes_bytes=outsiders.KINDS[kind].changes_bytes and outsiders.KINDS[kind].step is not None,
            is_strong=plan.is_strong(account, forced_level),
            updates=account.updates,
            kills=account.kills,
            lost=account.lost + account.lost_commits,
            torn=account.torn,
            false=account.false_refusals,
            withdrawn=account.withdrawn,
        )
        if missed:
            complaints.append(report.explanation(name, account, missed, args.seed, kind))
        if missed and args.keep:
            complaints.append(f"    kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{outside_updates} outside updates in all")
    if not args.figures:
        print(f"\n{report.LEGEND}")
    if complaints:
        print("\n" + "\n".join(complaints))
    return not complaints


def _one_round(args: argparse.Namespace, round_: arena.Round) -> tuple[Account, str]:
    """Run a round; once more, and longer, if no guard got anything done, as happens on a busy machine."""
    for times in (1, 4):
        folder = tempfile.mkdtemp(prefix="noclobber-torture-", dir=args.folder)
        longer = round_._replace(seconds=round_.seconds * times)
        account = arena.run(os.path.join(folder, "round"), longer)[0]
        if account.commits or times > 1:
            break
        shutil.rmtree(folder, ignore_errors=True)
    return account, folder


if __name__ == "__main__":
    sys.exit(main())
