"""
Commands in the guarded shell, under everything that can go wrong: `python -m torture.shell`.

Agents change the same few files with commands: six ways to read, modify and write one file, commands over
several files, commands that rename folders, and `git commit`. Outsiders append to the same files and save
one of them as an editor does. A part of the commands is killed with SIGKILL at a random moment. Every
change carries a token of its own, so that afterwards each can be looked for:

- what a command with exit code 0 wrote is there, once;
- of a command that was refused nothing is there;
- of one that was killed all is there or nothing, in all of its files (never *mixed*);
- what outsiders wrote is there;
- git's HEAD, index and tree agree, its history has every commit that landed, and `git fsck` is clean.

The same commands by plain `sh -c` are the control: they lose updates.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from noclobber.cli import run as guarded

AGENTS = 8
FILES = ("a.txt", "b.txt", "sub/c.txt")
PAIR = ("left.txt", "sub/right.txt")
PYTHON = "import sys; n,t=sys.argv[1:]; d=open(n).read(); open(n,'w').write(d+t+chr(10))"
ONE_FILE = {
    "append": "echo {token} >> {file}",
    "sed": "sed -i '$a {token}' {file}",
    "awk": "awk '{{print}} END {{print \"{token}\"}}' {file} > {file}.{token} && mv {file}.{token} {file}",
    "heredoc": "cat > {file}.{token} <<EOF\n$(cat {file})\n{token}\nEOF\n"
    "cp {file}.{token} {file}; rm {file}.{token}",
    "python": f'python3 -S -c "{PYTHON}" {{file}} {{token}}',
    "tee": "{{ cat {file}; echo {token}; }} | tac | tac | tee {file}.{token} > /dev/null;"
    " mv {file}.{token} {file}",
}
SEVERAL = (
    "echo {token} >> left.txt; sed -i '$a {token}' sub/right.txt; mkdir -p boxes; mkdir boxes/{token};"
    " echo {token} > boxes/{token}/in-it"
)
FOLDERS = (
    "if [ -d here ]; then mv here there; else mv there here; fi;"
    " echo {token} >> $(ls -d here there 2>/dev/null)/f"
)
COMMIT = "echo {token} >> tracked.txt && git commit -qam {token}"
KINDS = (*ONE_FILE, "several", "folders", "commit")
LONGEST_COMMAND_S = 60


class Done(NamedTuple):
    """One command, and how it ended: `landed`, `refused`, `failed` or `killed`."""

    kind: str
    token: str
    file: str
    how: str


class Verdict(NamedTuple):
    """What was found afterwards."""

    commands: Counter[str]
    lost: int
    mixed: int
    ghosts: int
    """Tokens of refused commands that are there."""
    trouble: list[str]

    @property
    def is_clean(self) -> bool:
        """True if no bar was missed."""
        return not (self.lost or self.mixed or self.ghosts or self.trouble)


def prepare(root: Path) -> None:
    """Make the project that everybody works in."""
    (root / "sub").mkdir(parents=True)
    (root / "here").mkdir()
    for name in (*FILES, *PAIR, "tracked.txt", "here/f", "editor.txt"):
        (root / name).write_text("begin\n")
    git = "git init -q . && git config user.email a@b && git config user.name a && git config gc.auto 0"
    git += " && git add tracked.txt && git commit -qm begin"
    subprocess.run(["sh", "-c", git], cwd=root, check=True)
    (root / ".noclobber").mkdir(mode=0o700)


def agent(
    root: Path, number: int, until_s: float, most: int, seed: int, kill: float, plain: bool, out: Path
) -> None:
    """Run commands one after the other and write down how each ended."""
    rng = random.Random(f"{seed}/{number}")
    os.chdir(root)
    with out.open("a") as log:
        for count in range(most):
            if time.monotonic() > until_s:
                break
            kind, file = rng.choice(KINDS), rng.choice(FILES)
            token = f"t{number}x{count}x{rng.randrange(1 << 32):x}"
            template = ONE_FILE.get(kind) or {"several": SEVERAL, "folders": FOLDERS, "commit": COMMIT}[kind]
            text = template.format(token=token, file=file)
            dies = rng.random() < kill
            how = _run(text, plain=plain, dies_after_s=rng.random() * 0.15 if dies else None)
            log.write(f"{kind}\t{token}\t{file}\t{how}\n")
            log.flush()


def _run(text: str, *, plain: bool, dies_after_s: float | None) -> str:
    """Run one command in a child of its own, which may be killed."""
    pid = os.fork()
    if pid == 0:
        nothing_fd = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing_fd, descriptor)
        code = 70
        try:
            if plain:
                os.execvp("sh", ["sh", "-c", text])
            code = guarded.main(["--require", "--", "sh", "-c", text])
        finally:
            os._exit(code)
    deadline_s = time.monotonic() + (LONGEST_COMMAND_S if dies_after_s is None else dies_after_s)
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > deadline_s:
            os.kill(pid, signal.SIGKILL)
            break
        time.sleep(0.002)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return "killed" if dies_after_s is not None else "hung"
    code = os.WEXITSTATUS(status)
    other = "landed" if plain else f"failed {code}"
    return {0: "landed", 75: "refused", 69: "unavailable"}.get(code, other)


def outsider(root: Path, number: int, until_s: float, out: Path) -> None:
    """Append to the files as other programs do."""
    rng, count = random.Random(number), 0
    with out.open("a") as log:
        while time.monotonic() < until_s:
            count += 1
            token, file = f"o{number}x{count}", rng.choice(FILES)
            with open(root / file, "ab", buffering=0) as target:
                target.write(f"{token}\n".encode())
            log.write(f"outsider\t{token}\t{file}\tlanded\n")
            log.flush()
            time.sleep(rng.random() * 0.2)


def judge(root: Path, done: list[Done]) -> Verdict:
    """Look for every token."""
    lost = mixed = ghosts = 0
    trouble: list[str] = []
    lines = {name: Counter((root / name).read_text().split()) for name in (*FILES, *PAIR, "tracked.txt")}
    here = root / "here/f" if (root / "here").exists() else root / "there/f"
    lines["folder"] = Counter(here.read_text().split())
    kept_files = [path for path in (root / ".noclobber/kept").glob("*") if path.is_file()]
    kept = "\n".join(path.read_text(errors="replace") for path in kept_files)
    history = _told_by(root, "git", "log", "--format=%s").split()
    for each in done:
        if each.kind == "several":
            boxed = (root / "boxes" / each.token / "in-it").exists()
            found = [lines[name][each.token] for name in PAIR] + [int(boxed)]
        elif each.kind == "folders":
            found = [lines["folder"][each.token]]
        elif each.kind == "commit":
            found = [lines["tracked.txt"][each.token], history.count(each.token)]
        else:
            found = [lines[each.file][each.token]]
        if len(set(found)) > 1 or max(found) > 1:
            mixed += 1
        elif each.how == "landed" and found[0] == 0 and each.token not in kept:
            lost += 1
        elif each.how == "refused" and found[0]:
            ghosts += 1
        elif each.how not in ("landed", "refused", "killed"):
            trouble.append(f"{each.kind} {each.token}: {each.how}")
    fsck = subprocess.run(["git", "fsck", "--strict"], cwd=root, capture_output=True, text=True)
    if fsck.returncode:
        trouble.append(f"git fsck: {fsck.stderr}")
    if apart := _told_by(root, "git", "status", "--porcelain", "-uno"):
        trouble.append(f"HEAD and tree are apart: {apart}")
    ended = Counter(each.how.split()[0] for each in done if each.kind != "outsider")
    ended["outsiders"] = sum(each.kind == "outsider" for each in done)
    return Verdict(ended, lost, mixed, ghosts, trouble)


def _told_by(root: Path, *command: str) -> str:
    return subprocess.run(command, cwd=root, capture_output=True, text=True).stdout


def play(
    root: Path, *, seconds: float, commands: int, agents: int, seed: int, kill: float, plain: bool = False
) -> Verdict:
    """Let everybody work, then look."""
    prepare(root)
    logs = root.parent / f"{root.name}-logs"
    logs.mkdir()
    until_s = time.monotonic() + seconds
    pids = []
    for number in range(agents + 2):
        pid = os.fork()
        if pid == 0:
            try:
                log = logs / str(number)
                if number < agents:
                    agent(root, number, until_s, -(-commands // agents), seed, kill, plain, log)
                else:
                    outsider(root, number, until_s, log)
            finally:
                os._exit(0)
        pids.append(pid)
    for pid in pids[:agents]:
        os.waitpid(pid, 0)
    for pid in pids[agents:]:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
    if not plain:  # The next command cleans up after the killed ones.
        for name in ("sub/last", "last"):
            command = [sys.executable, "-m", "noclobber", "run", "--", "touch", name]
            subprocess.run(command, cwd=root, check=True)
    rows = [line.split("\t") for log in logs.iterdir() for line in log.read_text().splitlines()]
    verdict = judge(root, [Done(*row) for row in rows if len(row) == 4])
    if not plain:
        verdict.trouble.extend(_left_over(root))
    return verdict


def _left_over(root: Path) -> list[str]:
    """What must not be there when all is over: folders of runs that were not refused, and mounts."""
    found = [
        f"left behind: {folder}"
        for folder in (root / ".noclobber/run").iterdir()
        if not (folder / "refused.json").exists()
    ]
    with open("/proc/self/mountinfo") as mounts:
        found += [f"still mounted: {line}" for line in mounts if str(root) in line]
    return found


def main(argv: list[str] | None = None) -> int:
    """Return 0 if every bar was met."""
    parser = argparse.ArgumentParser(prog="python -m torture.shell", description=__doc__)
    parser.add_argument("--commands", type=int, default=int(os.environ.get("COMMANDS", "10000")))
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SECONDS", "3600")))
    parser.add_argument("--agents", type=int, default=int(os.environ.get("AGENTS", str(AGENTS))))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or random.randrange(1 << 30)))
    args = parser.parse_args(argv)
    print(f"torture.shell: seed {args.seed}, {args.agents} agents, {args.commands} commands")
    with tempfile.TemporaryDirectory(prefix="noclobber-torture-shell-") as folder:
        verdict = play(
            Path(folder, "guarded"),
            seconds=args.seconds,
            commands=args.commands,
            agents=args.agents,
            seed=args.seed,
            kill=0.06,
        )
        _print("guarded", verdict)
        control = play(
            Path(folder, "plain"),
            seconds=min(20.0, args.seconds),
            commands=min(2000, args.commands),
            agents=args.agents,
            seed=args.seed,
            kill=0.0,
            plain=True,
        )
        _print("plain sh -c", control)
    return 0 if verdict.is_clean else 1


def _print(name: str, verdict: Verdict) -> None:
    counts = ", ".join(f"{how} {count}" for how, count in sorted(verdict.commands.items()))
    print(f"{name}: {counts}; lost {verdict.lost}, mixed {verdict.mixed}, ghosts {verdict.ghosts}")
    for line in verdict.trouble[:10]:
        print(f"  {line}")


if __name__ == "__main__":
    sys.exit(main())
