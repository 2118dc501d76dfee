"""An outside writer that is a real program: `git checkout` of one version after the other."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from torture import versions

if TYPE_CHECKING:
    from torture.outside_writer import OutsideWriter

GIT_VERSIONS_PER_S = 200  # More than git can check out.


def check_out_with_git(writer: OutsideWriter) -> None:
    """`git checkout --force` of the next version: git deletes the file and creates it anew."""
    folder = os.path.dirname(writer.path)
    commits: list[str] = writer.__dict__.setdefault("commits", [])
    if not commits:
        commits.extend(_git(folder, "rev-list", "--reverse", "versions").stdout.split())
    if writer.made >= len(commits):
        writer.pause(0.01)
        return
    for _ in range(200):
        # A guard that creates the file between git's unlink and create makes git fail; try again.
        if _git(folder, "checkout", "--quiet", "--force", "--detach", commits[writer.made]).returncode == 0:
            break
    else:
        writer.log("N git checkout kept failing")
        return
    writer.done(f"o:{writer.made}" if writer.made else "start:0")
    writer.look()


def _git(folder: str, *words: str, feed: bytes | None = None) -> subprocess.CompletedProcess[str]:
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
    return subprocess.run(
        ["git", "-c", "gc.auto=0", *words],
        cwd=folder,
        input=feed.decode() if feed is not None else None,
        stdin=subprocess.DEVNULL if feed is None else None,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **quiet},
    )


def prepare_git(path: str, seconds: float) -> None:
    """Make a repository with as many versions of the file as can be needed, in one go."""
    folder, name = os.path.split(path)
    stream: list[bytes] = []
    for number in range(1, int(GIT_VERSIONS_PER_S * (seconds + 1))):
        content = versions.render(
            f"o:{number}",
            f"o:{number - 1}" if number > 1 else "start:0",
            ((1, number),),
            padding_bytes=number % 300,
        )
        stream.append(b"commit refs/heads/versions\ncommitter a <a@example.org> %d +0000\ndata 0\n" % number)
        stream.append(b"M 100644 inline %b\ndata %d\n%b\n" % (name.encode(), len(content), content))
    for words, feed in ((("init", "--quiet"), None), (("fast-import", "--quiet"), b"".join(stream))):
        done = _git(folder, *words, feed=feed)
        if done.returncode:
            raise RuntimeError(f"git {words[0]}: {done.stderr.strip()}")
