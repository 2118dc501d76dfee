"""
What needs a person: versions that were kept aside, commands that were refused, and what `doctor` found wrong.

Each has a diff, where there is one, and what can be done about it. Doing it is up to `actions`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from noclobber.core.clock import iso8601
from noclobber.core.project import state_folder
from noclobber.disk import small_file
from noclobber.disk.commit import leftovers
from noclobber.shell import runs
from noclobber.text.diff import unified
from noclobber.text.visible import visible, visible_lines
from noclobber.view.shown_events import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noclobber.core.findings import Finding

MOST_ITEMS = 100
MOST_COMMAND = 400
MOST_DIFFED_BYTES = 1 << 20
MOST_DIFF_LETTERS = 200_000
SHOWN_ANYWAY = ("kept file",)  # What `doctor` says of these is shown here with its diff.
KEPT, RUN, FINDING = "kept", "run", "finding"


class Attention(NamedTuple):
    """One thing that waits for a person."""

    kind: str
    """`kept`, `run` or `finding`."""
    name: str
    """Names it among its kind: the kept file's own name, the command's id, the check's name."""
    title: str
    detail: str
    time: str
    actions: tuple[str, ...]


def found_in(root: str, findings: Iterable[Finding], now_s: float) -> list[Attention]:
    """Return everything that waits, the newest first; findings before the rest."""
    wrong = [
        Attention(FINDING, finding.name, shortened(finding.name), _told(finding), "", ())
        for finding in findings
        if not finding.ok and finding.name not in SHOWN_ANYWAY
    ]
    waiting = [*kept_versions(root, now_s), *refused_runs(root)]
    return [*wrong, *sorted(waiting, key=lambda item: item.time, reverse=True)][:MOST_ITEMS]


def _told(finding: Finding) -> str:
    return shortened(f"{finding.detail}{f' → {finding.remedy}' if finding.remedy else ''}", 600)


def kept_versions(root: str, now_s: float) -> list[Attention]:
    """Return the versions that could neither be put back nor be dropped."""
    return [
        Attention(
            KEPT,
            os.path.basename(each.path),
            f"a version of {shortened(each.name)} is kept",
            f"{each.size_bytes} bytes that somebody saved and a write replaced",
            each.changed,
            ("restore", "drop"),
        )
        for each in leftovers.found_in(state_folder(root), now_s).kept
    ]


class RefusedRun(NamedTuple):
    """A command that was refused, and waits to be run again or dropped."""

    run_id: str
    agent_id: str
    command: str
    is_ours: bool
    """False for one that has not run here, but came with the folder."""
    error_type: str
    changed: str


def refused_commands(root: str) -> list[RefusedRun]:
    """Return the commands that were refused, and are kept (`noclobber run list`)."""
    listed = []
    for run_id in runs.all_ids(root):
        folder = runs.found(root, run_id)
        if folder is None:
            continue  # Somebody works in it.
        try:
            if not folder.is_refused:
                continue
            job, refused = folder.noted("job") or {}, folder.noted("refused") or {}
            argv = job.get("argv")
            command = " ".join(str(word) for word in argv) if isinstance(argv, list) else "?"
            if len(command) > MOST_COMMAND:  # At its end, and said: what is left out may be what matters.
                command = f"{command[:MOST_COMMAND]} … ({len(command) - MOST_COMMAND} letters more)"
            who, why = shortened(job.get("agent_id"), 60), shortened(refused.get("code"), 60)
            listed.append(
                RefusedRun(
                    folder.run_id,
                    who,
                    visible(command),
                    folder.is_ours,
                    why,
                    iso8601(folder.changed_at_s),
                )
            )
        except OSError:
            continue  # Dropped meanwhile.
        finally:
            folder.close()
    return listed


def refused_runs(root: str) -> list[Attention]:
    """The same, as something that needs a person."""
    return [
        Attention(
            RUN,
            each.run_id,
            f"a command of {each.agent_id or 'somebody'} was refused: {each.command}"
            if each.is_ours
            else f"a command came with this folder, and has not run here: {each.command}",
            f"{each.error_type}; nothing of it landed" if each.is_ours else "it is not run from here",
            each.changed,
            ("retry", "drop") if each.is_ours else ("drop",),
        )
        for each in refused_commands(root)
    ]


# -- diffs ------------------------------------------------------------------------------------------------


def diff_of_kept(root: str, name: str, target: str | None, now_s: float) -> str:
    """Return what putting a kept version back would change; `target` is the file that it belongs to."""
    for each in leftovers.found_in(state_folder(root), now_s).kept:
        if os.path.basename(each.path) == name:
            content = read_bounded(each.path)
            if target is None or content is None:
                break
            return diff_text(read_bounded(target) or b"", content, target.removeprefix(root.rstrip("/")))
    else:
        return "It is not there any more."
    if content is None:
        return "It cannot be read, or is too large to be shown."
    return diff_text(b"", content, f"/{each.name}")


def diff_text(before: bytes, after: bytes, path: str) -> str:
    """Return a diff that is safe to look at: control characters spelled out, and cut if it is long."""
    text = visible_lines(unified(before, after, path)) or "There is no difference."
    if len(text) > MOST_DIFF_LETTERS:
        text = f"{text[:MOST_DIFF_LETTERS]}\n(The rest is not shown.)\n"
    return text


def read_bounded(path: str) -> bytes | None:
    """Return a file's bytes; None if there is none, or it is too large, or cannot be read."""
    try:
        return small_file.read(path, most_bytes=MOST_DIFFED_BYTES)
    except OSError:
        return None
