"""The diff that `edit_file` answers with, spelled as the replaced server spells it, between backticks."""

from __future__ import annotations

import re

from noclobber.text.diff import edit_script, hunks, lines

CONTEXT_LINES = 4
_RULE = "=" * 67


def fenced(before: str, after: str, path: str) -> str:
    """Return the patch as the answer's text, in a fence that is longer than any in it."""
    text = unified(before, after, path)
    ticks = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, ticks + 1)
    return f"{fence}diff\n{text}{fence}\n\n"


def unified(before: str, after: str, path: str) -> str:
    """Return the patch from one text to another."""
    out = [f"Index: {path}\n{_RULE}\n--- {path}\toriginal\n+++ {path}\tmodified\n"]
    for hunk in hunks(edit_script(lines(before), lines(after)), CONTEXT_LINES):
        old_start = hunk.old_start + bool(hunk.old_count)
        new_start = hunk.new_start + bool(hunk.new_count)
        out.append(f"@@ -{old_start},{hunk.old_count} +{new_start},{hunk.new_count} @@\n{hunk.text}")
    return "".join(out)
