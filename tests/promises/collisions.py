"""
Scenarios with values that collide: what several agents write is equal, so content alone tells nobody apart.

Whatever is reported as landed counts exactly once. Agents work at once, by any way in; commands are real shell
commands, and exclusive operations have exactly one winner.
"""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable

from tests.promises.agent import LANDED, Agent, Stand, Told, all_at_once
from tests.promises.scenarios import FILE, MINE, STALE, THEIRS, V1, content, scenario
from tests.rigs.meanwhile import Meanwhile

AGENTS = 4


def others(stand: Stand, agent: Agent) -> list[Agent]:
    """Return four agents, the given one among them."""
    return [agent, *(stand.agent(f"agent-{number}") for number in range(1, AGENTS))]


def landed(told: list[Told]) -> int:
    """How many were told that their change landed. Everybody else was refused, or failed as a command fails."""
    codes = [each.code for each in told]
    refused = ("STALE_FILE", "FILE_CLAIMED", "FILE_BUSY", "UNREAD_FILE")
    assert all(code in (LANDED, *refused) or code.startswith("EXIT ") for code in codes), codes
    return codes.count(LANDED)


# -- by any way in ------------------------------------------------------------------------------------------------


@scenario(
    "A counter that four agents increment at once counts each success once",
    "009-SC-001, finding E1, finding E3",
    variants="merge coordinator",
)
def counter(stand: Stand, agent: Agent) -> None:
    stand.path("count").write_text("3\n")

    def increment(each: Agent) -> Told:
        each.read("count")
        return each.write("count", b"%d\n" % (int(content(stand, "count") or b"3") + 1))

    agents = others(stand, agent)
    for each in agents:
        each.read("count")
    told = all_at_once([functools.partial(each.write, "count", b"4\n") for each in agents])
    assert landed(told) == 1
    assert content(stand, "count") == b"4\n"
    assert increment(agents[0]).code == LANDED
    assert content(stand, "count") == b"5\n"


@scenario(
    "The same line, added by two agents, is there twice or one is refused",
    "finding E1, finding E3",
    variants="merge",
)
def equal_lines(stand: Stand, agent: Agent) -> None:
    agents = [agent, stand.agent("bea")]
    for each in agents:
        each.read(FILE)
    told = all_at_once([functools.partial(each.write, FILE, V1 + b"done\n") for each in agents])
    assert content(stand).count(b"done\n") == landed(told) >= 1


# -- by commands ----------------------------------------------------------------------------------------------------


def by_commands(stand: Stand, agent: Agent, command: Callable[[int], str]) -> int:
    """Four agents run a command at once; return how many were told that it landed."""
    acts = [functools.partial(each.run, command(number)) for number, each in enumerate(others(stand, agent))]
    return landed(all_at_once(acts))


@scenario("`n=$(cat c); echo $((n+1)) > c` by four at once", "finding E1", needs="commands")
def counter_by_commands(stand: Stand, agent: Agent) -> None:
    stand.path("c").write_text("3\n")
    successes = by_commands(stand, agent, lambda number: "n=$(cat c); echo $((n+1)) > c")
    assert successes >= 1
    assert content(stand, "c") == b"%d\n" % (3 + successes)


@scenario("Tickets: no number is drawn twice", "finding E1, finding G4", needs="commands")
def tickets(stand: Stand, agent: Agent) -> None:
    stand.path("next").write_text("1\n")
    stand.path("drawn").mkdir()
    draw = "n=$(cat next); echo $n > drawn/{}; echo $((n+1)) > next"
    successes = by_commands(stand, agent, draw.format)
    drawn = [path.read_text() for path in stand.path("drawn").iterdir()]
    assert len(drawn) == len(set(drawn)) == successes >= 1
    assert content(stand, "next") == b"%d\n" % (1 + successes)


@scenario("A queue by `mv`: a job is taken once", "finding G4", needs="commands")
def queue(stand: Stand, agent: Agent) -> None:
    stand.path("job").write_text("work\n")
    assert by_commands(stand, agent, "mv job taken-{}".format) == 1
    assert len(list(stand.root.glob("taken-*"))) == 1
    assert not stand.path("job").exists()


def exclusive(command: str) -> Callable[[Stand, Agent], None]:
    """A command of which exactly one of four may succeed."""

    def play(stand: Stand, agent: Agent) -> None:
        stand.path("job").write_text("work\n")
        for name in ("full", "tree", "tree/deep"):
            stand.path(name).mkdir()
        for number in range(8):
            stand.path(f"tree/deep/{number}").write_text("work\n")
        assert by_commands(stand, agent, lambda number: command.format(number)) == 1

    return play


for _name, _command in {
    "mutex": "mkdir claim",
    "no_clobber": "set -C; : > claim",
    "link": "ln -s owner claim",
    "removal": "rm job",
    "folder_removal": "rmdir full",
    "tree_removal": "rm -r tree",
    "tree_taken": "cp -r tree taken-{} && rm -r tree",
}.items():
    _play = exclusive(_command)
    _play.__name__ = f"exclusive_{_name}"
    scenario(
        f"`{_command.replace('-{}', '')}` by four at once has one winner", "finding E1", needs="commands"
    )(_play)


@scenario(
    "The same line, appended by four commands, is there once for each that landed",
    "finding E1",
    needs="commands",
)
def appended(stand: Stand, agent: Agent) -> None:
    successes = by_commands(stand, agent, lambda number: f"echo done >> {FILE}")
    assert content(stand).count(b"done\n") == successes >= 1


@scenario("All of a command lands, or nothing", "finding G4, 011-FR-002", needs="commands")
def all_of_a_command(stand: Stand, agent: Agent) -> None:
    for name in ("x", "y", "z"):
        stand.path(name).write_text("10\n")
    take = "a=$(cat x); b=$(cat {0}); echo $((a-1)) > x; echo $((b+1)) > {0}"
    by_commands(stand, agent, lambda number: take.format("yz"[number % 2]))
    assert sum(int(content(stand, name)) for name in ("x", "y", "z")) == 30


# -- while a command runs ---------------------------------------------------------------------------------------------


def meanwhile(stand: Stand, agent: Agent, act: Callable[[], object], before: str, after: str) -> Told:
    """Run a command in two parts; something happens between them."""
    waits = Meanwhile(stand.root.parent / "meanwhile", act)
    return agent.run(f"{before}; {waits.pause}; {after}")


@scenario(
    "What a person saves while a command runs is not overwritten", "finding E1, ruling 18", needs="commands"
)
def saved_meanwhile(stand: Stand, agent: Agent) -> None:
    told = meanwhile(
        stand, agent, lambda: stand.path(FILE).write_bytes(THEIRS), f"cat {FILE}", f"echo x > {FILE}"
    )
    assert told.code == STALE
    assert content(stand) == THEIRS


@scenario(
    "What a person saves while a command runs is a conflict, also if the content is equal",
    "finding E1, ruling 30",
    needs="commands",
)
def saved_equal_meanwhile(stand: Stand, agent: Agent) -> None:
    told = meanwhile(
        stand, agent, lambda: stand.path(FILE).write_bytes(MINE), ":", f'echo "the agent\'s" > {FILE}'
    )
    assert told.code == STALE
    assert len(stand.events("MUTATION_CONFLICT")) == 1


@scenario(
    "Changed and changed back while a command runs is changed", "finding E1, ruling 30", needs="commands"
)
def changed_and_back_meanwhile(stand: Stand, agent: Agent) -> None:
    def act() -> None:
        stand.path(FILE).write_bytes(THEIRS)
        stand.path(FILE).write_bytes(V1)

    assert meanwhile(stand, agent, act, f"cat {FILE}", f"echo x > {FILE}").code == STALE
    assert content(stand) == V1


@scenario("A file that was deleted while a command runs is not created again", "finding E7", needs="commands")
def deleted_meanwhile(stand: Stand, agent: Agent) -> None:
    told = meanwhile(stand, agent, lambda: stand.path(FILE).unlink(), f"echo x > {FILE}", ":")
    assert told.code == STALE
    assert not stand.path(FILE).exists()


@scenario(
    "A file that was deleted before the command opened it for writing is not created again",
    "finding E7",
    needs="commands",
)
def deleted_before_it_was_opened(stand: Stand, agent: Agent) -> None:
    told = meanwhile(stand, agent, lambda: stand.path(FILE).unlink(), f"cat {FILE}", f"echo x > {FILE}")
    assert told.code == STALE
    assert not stand.path(FILE).exists()


@scenario(
    "A name that another made and removed while a command runs is free",
    "finding E1, ruling 30",
    needs="commands",
)
def made_and_removed_meanwhile(stand: Stand, agent: Agent) -> None:
    def act() -> None:
        stand.path("new.md").write_bytes(THEIRS)
        stand.path("new.md").unlink()

    # There is nothing there, and nothing of anybody's is lost: it lands.
    assert meanwhile(stand, agent, act, ":", "echo x > new.md").code == LANDED
    assert content(stand, "new.md") == b"x\n"


@scenario("A command that changed nothing refuses nothing", "finding E1", needs="commands")
def nothing_changed_meanwhile(stand: Stand, agent: Agent) -> None:
    told = meanwhile(stand, agent, lambda: stand.path(FILE).write_bytes(THEIRS), f"cat {FILE}", f"cat {FILE}")
    assert told.code == LANDED
    assert stand.events() == []


@scenario(
    "A file that was only touched while a command runs is not stale",
    "009-SC-002, finding E9",
    needs="commands",
)
def touched_meanwhile(stand: Stand, agent: Agent) -> None:
    def act() -> None:
        os.utime(stand.path(FILE), (1_000_000_000, 1_000_000_000))

    assert meanwhile(stand, agent, act, ":", f"echo x > {FILE}").code == LANDED


# -- what a command reads and brings in -------------------------------------------------------------------------------


@scenario("`cat f` in a command is a read", "finding E9", needs="commands turns")
def shown_by_a_command(stand: Stand, agent: Agent) -> None:
    assert agent.run(f"cat {FILE}").code == LANDED
    stand.path(FILE).write_bytes(THEIRS)
    assert agent.write(FILE, MINE).code == STALE
    assert content(stand) == THEIRS


@scenario(
    "What a command brings in was not seen by the agent", "finding E5, ruling 30", needs="commands turns"
)
def brought_in(stand: Stand, agent: Agent) -> None:
    stand.path("theirs.md").write_bytes(THEIRS)
    agent.read(FILE)
    assert agent.run(f"cp theirs.md {FILE}").code == LANDED
    told = agent.write_by_tool(FILE, MINE)
    assert told.code in (STALE, "UNREAD_FILE"), told
    assert content(stand) == THEIRS


@scenario(
    "A file that was read is checked in folders of build output, too",
    "finding E6, ruling 30",
    needs="commands",
)
def read_in_an_unchecked_folder(stand: Stand, agent: Agent) -> None:
    stand.path("build").mkdir()
    stand.path("build/out.md").write_bytes(V1)
    agent.read("build/out.md")
    stand.path("build/out.md").write_bytes(THEIRS)
    assert agent.write("build/out.md", MINE).code == STALE
    assert content(stand, "build/out.md") == THEIRS


@scenario(
    "A file that git tracks is checked in folders of build output, too", "finding G10", needs="commands"
)
def tracked_build_output(stand: Stand, agent: Agent) -> None:
    stand.path("build").mkdir()
    stand.path("build/out.md").write_bytes(V1)
    for words in (("init", "-q"), ("add", "-f", "build/out.md")):
        subprocess.run(["git", *words], cwd=stand.root, check=True)

    def act() -> None:
        stand.path("build/out.md").write_bytes(THEIRS)

    assert meanwhile(stand, agent, act, "cat build/out.md", "echo x > build/out.md").code == STALE
    assert content(stand, "build/out.md") == THEIRS


@scenario(
    'A command is asked about `partial = "deny"`, too',
    "finding E4",
    needs="commands part",
    options='partial = "deny"',
)
def partly_read_by_command(stand: Stand, agent: Agent) -> None:
    agent.read(FILE, (1, 2))
    for command in ("echo x > {}", "printf x > {}", "echo x > n; mv n {}", "sed -i s/.$/x/ {}", ": > {}"):
        assert agent.run(command.format(FILE)).code == "PARTIAL_READ", command
        assert content(stand) == V1
    assert agent.run(f"sed -i 1d {FILE}; echo more >> {FILE}").code == LANDED
    assert content(stand) == V1.partition(b"\n")[2] + b"more\n"


# -- merging ------------------------------------------------------------------------------------------------------------


LONG = b"".join(b"line %d\n" % number for number in range(1, 21))


def apart(stand: Stand, agent: Agent, name: str = FILE) -> Told:
    """Both change a line of a long file, far from each other."""
    stand.path(name).write_bytes(LONG)
    agent.read(name)
    stand.path(name).write_bytes(LONG.replace(b"line 3\n", b"theirs\n"))
    return agent.write(name, LONG.replace(b"line 17\n", b"mine\n"))


BOTH = LONG.replace(b"line 3\n", b"theirs\n").replace(b"line 17\n", b"mine\n")


def is_merged(stand: Stand) -> bool:
    """True if both changes are there, and the record says that they were merged."""
    return content(stand) == BOTH and "merge" in str(stand.events("MUTATION"))


@scenario("Changes in different places are merged", "ruling 17", needs="read rewrite", variants="merge only")
def merged(stand: Stand, agent: Agent) -> None:
    assert apart(stand, agent).code == LANDED
    assert is_merged(stand)


@scenario(
    "A stale edit in another place is merged",
    "ruling 17",
    needs="read edit replacement tools",
    variants="merge only",
)
def merged_edit(stand: Stand, agent: Agent) -> None:
    stand.path(FILE).write_bytes(LONG)
    agent.read(FILE)
    stand.path(FILE).write_bytes(LONG.replace(b"line 3\n", b"theirs\n"))
    assert agent.edit(FILE, "line 17\n", "mine\n").code == LANDED
    assert is_merged(stand)


@scenario(
    "What a command computed while others changed the file is refused, and lands when it is run again",
    "ruling 17",
    needs="commands",
    variants="merge only",
)
def computed_meanwhile(stand: Stand, agent: Agent) -> None:
    stand.path(FILE).write_bytes(LONG)
    agent.read(FILE)
    theirs = LONG.replace(b"line 3\n", b"theirs\n")
    change = f"sed -i 's/^line 17$/mine/' {FILE}"
    assert meanwhile(stand, agent, lambda: stand.path(FILE).write_bytes(theirs), change, ":").code == STALE
    assert content(stand) == theirs
    agent.read(FILE)
    assert agent.run(change).code == LANDED
    assert content(stand) == BOTH


@scenario("Changes of the same line are refused", "ruling 17", needs="read", variants="merge only")
def conflicting(stand: Stand, agent: Agent) -> None:
    agent.read(FILE)
    stand.path(FILE).write_bytes(V1.replace(b"two", b"2"))
    assert agent.write(FILE, V1.replace(b"two", b"II")).code == STALE
    assert content(stand) == V1.replace(b"two", b"2")


@scenario(
    "Equal changes of the same line are refused: two increments are two",
    "ruling 29, finding E3",
    needs="read",
    variants="merge only",
)
def equal_changes(stand: Stand, agent: Agent) -> None:
    stand.path(FILE).write_bytes(b"stock 10\n" + LONG)
    agent.read(FILE)
    stand.path(FILE).write_bytes(b"stock 9\n" + LONG)
    assert agent.write(FILE, b"stock 9\n" + LONG.replace(b"line 17\n", b"mine\n")).code == STALE
    assert content(stand) == b"stock 9\n" + LONG


@scenario("JSON is not merged", "ruling 17", needs="read", variants="merge only")
def never_merged(stand: Stand, agent: Agent) -> None:
    assert apart(stand, agent, "data.json").code == STALE
