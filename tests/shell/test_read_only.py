"""Which shell commands are plainly read-only: few, and those for certain."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noclobber.shell.read_only import is_read_only


@pytest.mark.parametrize(
    "command",
    [
        "",
        "ls -la",
        "cat a.txt | head -5 && wc -l b.txt",
        "cd src && git status --short; pwd",
        "git -C sub log --oneline -5 -- a.txt",
        "git diff HEAD~2 --stat",
        "git show HEAD:a.txt 2>/dev/null",
        "git branch -vv",
        "git stash list",
        "find . -name '*.py' -not -path './x/*' -type f",
        r"find . \( -name a -o -name b \) -print0 | xargs -0 grep -n x",
        'grep -rn "foo$" src 2>&1 | head',
        "rg -n foo src",
        "sed -n '1,20p' a.txt",
        "awk '{print $1}' a.txt | sort -k2,2n | uniq -c | sort -rn",
        "LC_ALL=C sort a.txt",
        "[ -f a.txt ] && cat a.txt",
        "echo $HOME; cat $FILE *.txt",
        "timeout 5 ls # a comment > b",
        "python --version",
        "set -euo pipefail; ls\\\n -la",
        "echo hi > /dev/null",
    ],
)
def test_a_command_that_only_looks_is_known(command: str) -> None:
    """N-shell: it passes as it is, and costs nothing."""
    assert is_read_only(command)


@pytest.mark.parametrize(
    "command",
    [
        "cat a > b",
        "cat a >> b",
        "ls &> b",
        "echo a >| b",
        "cat <<EOF > b\nx\nEOF",
        "sed -i s/a/b/ a",
        "sed -n 'w out' a",
        "sed -n '1p' -i a",
        "find . -delete",
        "find . -name x -exec rm {} +",
        "find . -fprint out",
        "find *",
        "find $WHERE",
        "sort -o a a",
        "sort -no a a",
        "sort --outpu=a a",
        "sort -- -oa",
        "sort *",
        "uniq a b",
        "tree -o out",
        "rg --pre ./run x",
        "rg -e -- --pre=./run x",
        "git diff --output=x",
        "git log --outpu=x",
        "git branch new",
        "git branch -D old",
        "git tag v1",
        "git stash",
        "git config user.name x",
        "git checkout -- a",
        "git -c core.pager=./run log",
        "git grep -O./run x",
        "git reflog expire --all",
        "env ls",
        "PATH=. ls",
        "GIT_EXTERNAL_DIFF=./run git diff",
        "./ls",
        "ls $(touch x)",
        "ls `touch x`",
        'ls "$(touch x)"',
        "ls ${x:=y}",
        "(ls)",
        "{ ls; }",
        "ls() { rm a; }",
        "for i in a; do ls; done",
        "if ls; then rm a; fi",
        "ls <(rm a)",
        "ls &",
        "ls; rm a",
        "ls\nrm a",
        "ls | tee a",
        "ls | xargs rm",
        "ls | xargs find",
        "find . -name '*.py' | xargs sed -n 1p",
        "awk '{print > \"x\"}' a",
        "awk 'BEGIN{system(\"touch x\")}'",
        "awk -i inplace '{print}' a",
        "test -v 'a[$(touch x)]'",
        "printf -v 'a[$(touch x)]' y",
        "date -s 2020-01-01",
        "hostname evil",
        "python -c 'print(1)'",
        "eval ls",
        "source a",
        ". a",
        "exec ls",
        "cat 'unclosed",
        "ls $'a\\x'",
        "less -o log a",
        "timeout 5 rm a",
        "a\0b",
        "file -C",
    ],
)
def test_everything_else_may_write(command: str) -> None:
    """N-shell: a command that is taken for harmless and is not would go unguarded."""
    assert not is_read_only(command)


# Words that change something in one program or another, beside words that do not.
PROGRAMS = (
    *(
        "ls",
        "cat",
        "find",
        "git",
        "sort",
        "uniq",
        "grep",
        "sed",
        "awk",
        "tee",
        "touch",
        "rm",
        "echo",
        "printf",
    ),
    *(
        "test",
        "[",
        "head",
        "wc",
        "xargs",
        "env",
        "timeout",
        "tree",
        "file",
        "diff",
        "date",
        "cut",
        "tr",
        "cd",
    ),
    *("./run", "sh", "bash", "cp", "mv", "truncate", "dd", "split", "command", "less", "jq", "stat", "comm"),
)
WORDS = (
    *(
        "a.txt",
        "b.txt",
        "sub",
        ".",
        "*",
        "*.txt",
        "-",
        "--",
        "1",
        "x",
        "-i",
        "-n",
        "-o",
        "-w",
        "-d",
        "-delete",
    ),
    *(
        "-exec",
        "rm",
        "{}",
        "+",
        "\\;",
        "-fprint",
        "-name",
        "'*.txt'",
        "-print",
        "-o out",
        "--output=out",
        "-r",
    ),
    *(
        "status",
        "log",
        "diff",
        "show",
        "checkout",
        "--",
        "branch",
        "tag",
        "stash",
        "list",
        "add",
        "commit",
        "-m",
    ),
    *(
        "reset",
        "--hard",
        "clean",
        "-fd",
        "HEAD",
        "-p",
        "-c",
        "core.pager=./run",
        "-O./run",
        "grep",
        "-v",
        "]",
    ),
    *(
        "'1,2p'",
        "'w out'",
        "'{print}'",
        "'{print > \"out\"}'",
        "'BEGIN{system(\"./run\")}'",
        "$HOME",
        "$X",
        '"$X"',
    ),
    *(
        "'a[$(./run)]'",
        "$(./run)",
        "`./run`",
        "-u",
        "-k2",
        "--files0-from=a.txt",
        "-C",
        "-s",
        "-f",
        "a.txt b.txt",
    ),
    *(
        "--compress-program=./run",
        "-T",
        "sub",
        "-S1",
        "-l",
        "-a",
        "--pre=./run",
        "-e",
        "-F:",
        "-0",
        "touch",
        "out",
    ),
)
ENDS = (
    " > out",
    " >> a.txt",
    " 2> out",
    " >/dev/null",
    " 2>&1",
    " < a.txt",
    " </dev/null",
    " &> out",
    " <<E\nx\nE\n",
)
SEPARATORS = ("; ", " && ", " || ", " | ", "\n", " & ", " # ")
SIMPLE = st.builds(
    lambda program, words, end: " ".join([program, *words]) + end,
    st.sampled_from(PROGRAMS),
    st.lists(st.sampled_from(WORDS), max_size=4),
    st.sampled_from(("", "", "", *ENDS)),
)
COMMANDS = st.builds(
    lambda parts, separators: "".join(
        part + (separators[number] if number < len(parts) - 1 else "") for number, part in enumerate(parts)
    ),
    st.lists(SIMPLE, min_size=1, max_size=3),
    st.lists(st.sampled_from(SEPARATORS), min_size=3, max_size=3),
)


def tree_of(root: Path) -> dict[str, bytes | str]:
    """Everything below a folder, but for what git refreshes for itself."""
    found: dict[str, bytes | str] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name != ".git/index":
            found[name] = path.read_bytes() if path.is_file() else "folder"
    return found


@pytest.fixture(scope="module")
def scratch() -> object:
    """A small repository, with a program `run` that leaves a trace."""
    folder = Path(tempfile.mkdtemp())
    (folder / "a.txt").write_text("b 2\na 1\n")
    (folder / "b.txt").write_text("a 1\nc 3\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "c.txt").write_text("x\n")
    (folder / "run").write_text("#!/bin/sh\ntouch trace\ncat\n")
    (folder / "run").chmod(0o755)
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)
    (folder / "a.txt").write_text("b 2\na 1\nnew\n")
    yield folder
    shutil.rmtree(folder)


@settings(max_examples=400, deadline=None)
@given(command=COMMANDS)
def test_what_is_judged_read_only_changes_nothing_when_it_runs(scratch: Path, command: str) -> None:
    """N-shell: run for real, by a real shell, in a scratch repository."""
    if not is_read_only(command):
        return
    before = tree_of(scratch)
    environment = {"PATH": os.environ["PATH"], "HOME": str(scratch), "X": "-delete", "GIT_PAGER": "cat"}
    subprocess.run(
        ["bash", "-c", command],
        cwd=scratch,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
    )
    assert tree_of(scratch) == before
