"""
Merges of changes that people really made, judged by `git merge-file` like the generated ones.

    python -m torture.merge_corpus      REPO=. CORPUS=3000

The corpus is made from a repository's own history; without `REPO`, from this project's. Of three versions of
one file that followed each other, the first is the base, the second is ours, and theirs is the third without
the change from the first to the second, as git takes it out. So two changes that were made one after
the other meet as if they had been made at once. Where git cannot take it out there is no case.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from noclobber.text.merge import is_binary
from torture.merges import Case, Counts, judged, merged_by_git

MOST_BYTES = 400_000


def blobs(repository: str) -> Iterator[tuple[str, str, str]]:
    """Yield the ids of three versions of a file that followed each other, the latest changes first."""
    words = ["log", "--raw", "--no-renames", "--no-abbrev", "--no-merges", "--format="]
    log = subprocess.run(["git", "-C", repository, *words], capture_output=True, check=True).stdout
    later: dict[bytes, tuple[str, str]] = {}
    for line in log.splitlines():
        told, _, path = line.partition(b"\t")
        fields = told.decode("ascii").split()
        if len(fields) != 5 or fields[4] != "M" or not fields[0].endswith("100644"):
            later.pop(path, None)
            continue
        before, after = fields[2:4]
        if path in later and later[path][0] == after:
            yield before, after, later[path][1]
        later[path] = (before, after)


class Contents:
    """Reads blobs, by one process of git's."""

    def __init__(self, repository: str) -> None:
        self._git = subprocess.Popen(
            ["git", "-C", repository, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._known: dict[str, bytes] = {}

    def __getitem__(self, blob: str) -> bytes:
        if blob not in self._known:
            assert self._git.stdin is not None
            assert self._git.stdout is not None
            self._git.stdin.write(f"{blob}\n".encode())
            self._git.stdin.flush()
            size = int(self._git.stdout.readline().split()[2])
            self._known[blob] = self._git.stdout.read(size + 1)[:-1]
        return self._known[blob]

    def close(self) -> None:
        """End the process."""
        self._git.communicate()


def judge(repository: str, most: int) -> Counts:
    """Merge the cases of a repository here and in git; one in which git would not agree is printed."""
    counts, contents = Counts(), Contents(repository)
    try:
        with tempfile.TemporaryDirectory(prefix="noclobber-corpus-") as folder:
            for ids in blobs(repository):
                if counts.cases >= most:
                    break
                first, second, third = (contents[each] for each in ids)
                if max(map(len, (first, second, third))) > MOST_BYTES or is_binary(first + second + third):
                    continue
                theirs = merged_by_git(folder, Case(second, first, third))
                if theirs is None or len({first, second, theirs}) < 3:
                    continue
                counts = counts.plus(judged(folder, Case(first, second, theirs), " ".join(ids)))
    finally:
        contents.close()
    return counts


def main() -> int:
    """Judge the corpus, and say how it went."""
    repository, most = os.environ.get("REPO", "."), int(os.environ.get("CORPUS", "3000"))
    try:
        counts = judge(repository, most)
    except (OSError, subprocess.CalledProcessError):
        print("corpus: there is no history of a repository here; name one with REPO=")
        return 0
    print(f"corpus of real changes: {counts}")
    return 0 if counts.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
