"""
`noclobber doctor`: is this folder safe to work in? It tries everything and finishes what crashes left.

Joins its own checks with those of the lock and of the hooks. Exit code 0: healthy; 1: something needs a
person, and the remedy is next to it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from noclobber.cli import EXIT_NO, EXIT_OK
from noclobber.cli.doctor import crash_leftovers, workspace_checks
from noclobber.cli.terminal import (
    Progress,
    add_json,
    columns_wide,
    is_terminal,
    print_json,
    styled,
    visible,
)
from noclobber.cli.working import Working
from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.findings import Finding, remedy_of
from noclobber.core.project import existing_folder, find_project
from noclobber.errors import NoclobberError
from noclobber.hook import doctor as hook_doctor
from noclobber.lock import doctor as lock_doctor
from noclobber.text.visible import fold

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

EXAMPLES = """\
examples:
  noclobber doctor                 the current workspace
  noclobber doctor ~/project       another folder
  noclobber doctor --no-repair     only report: finish nothing, remove nothing
  noclobber doctor --json          for programs; the exit code says healthy (0) or not (1)
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("folder", nargs="?", metavar="FOLDER", help="default: the current workspace")
    parser.add_argument("--no-repair", action="store_true", help="only report: finish and remove nothing")
    add_json(parser)


def run(args: Namespace) -> int:
    """Run every check, print the findings, and return whether the folder is healthy."""
    root = existing_folder(args.folder) if args.folder is not None else find_project(os.getcwd())
    findings = examine(root, repair=not args.no_repair)
    healthy = all(finding.ok for finding in findings)
    if args.json:
        print_json(
            {"folder": root, "healthy": healthy, "findings": [finding._asdict() for finding in findings]}
        )
    else:
        print(_page(root, findings), end="")
    return EXIT_OK if healthy else EXIT_NO


def examine(root: str, *, repair: bool) -> list[Finding]:
    """Return every finding about a folder."""
    with Working("looking at the filesystem and at what crashes left"):
        findings = workspace_checks.check_level(root)
        findings += workspace_checks.check_config(root)
        findings += crash_leftovers.check_leftovers(root, SYSTEM_CLOCK, repair=repair)
        findings += _ask(
            "versions", lambda folder: workspace_checks.check_versions(folder, repair=repair), root
        )
    with Progress("events") as bar:
        findings += workspace_checks.check_ledger(root, bar.show)
    with Working("trying locks and hooks"):
        findings += _ask("noclobber run", workspace_checks.check_commands, root)
        findings += _ask("locks", lock_doctor.check, root)
        findings += _ask("hooks", hook_doctor.check, root)
    return findings


def _ask(name: str, check: Callable[[str], list[Finding]], root: str) -> list[Finding]:
    """Run another module's checks. If they fail themselves, that is a finding."""
    try:
        return check(root)
    except (OSError, NoclobberError) as error:
        return [Finding(name, False, f"could not be checked: {error}", remedy_of(error))]


NARROW_COLUMNS = 60


def _page(root: str, findings: list[Finding]) -> str:
    # In a narrow terminal what was found is below its name.
    is_narrow = is_terminal() and columns_wide() < NARROW_COLUMNS
    width = 0 if is_narrow else max(len(finding.name) for finding in findings)
    lines = [f"{styled('folder', 'strong')}  {visible(root)}\n"]
    for finding in findings:
        mark = styled("ok ", "good") if finding.ok else styled("BAD", "bad")
        first, *more = (
            ["", *_folded(visible(finding.detail), 0)]
            if is_narrow
            else _folded(visible(finding.detail), width)
        )
        lines.append(f"{mark}  {finding.name:<{width}}  {first}")
        lines += [f"     {'':<{width}}  {line}" for line in more]
        if finding.remedy:
            remedy = _folded("-> " + visible(finding.remedy), width)
            lines += [f"     {'':<{width}}  {styled(line, 'warn')}" for line in remedy]
    bad = sum(not finding.ok for finding in findings)
    verdict = (
        styled("healthy", "good") if not bad else styled(f"{bad} of {len(findings)} need attention", "bad")
    )
    return "\n".join([*lines, "", verdict, ""])


def _folded(text: str, width: int) -> list[str]:
    """Return a text in lines that fit beside the names, where a person is watching."""
    return fold(text, columns_wide() - width - 7).split("\n") if is_terminal() else [text]
