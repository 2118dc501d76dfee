"""The layout shows the architecture, and the documents say what is true."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import noclobber

PACKAGE = Path(noclobber.__file__).parent
PROJECT = PACKAGE.parents[1]

# Bottom to top. What is in a folder imports from that folder and from those before it.
ORDER = [
    *("errors", "core", "text", "disk", "ledger", "lock", "postgres", "shell", "guard", "aio", "hosts"),
    *("hook", "mcp", "adapters", "demo", "view", "cli", "__main__"),
]


def room(module: str) -> str:
    """The part of the package that a module belongs to."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports_of(path: Path) -> set[str]:
    """The rooms that a file imports from, wherever in the file it does so; not for type checkers only."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "noclobber":
            if node.module == "noclobber":
                found |= {alias.name for alias in node.names}
            else:
                found.add(room(node.module))
        elif isinstance(node, ast.Import):
            found |= {room(alias.name) for alias in node.names if alias.name.startswith("noclobber.")}
    return found


def test_imports_point_down_only() -> None:
    """N-architecture: the order of rooms is the way of a write."""
    height = {name: number for number, name in enumerate(ORDER)}
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        own = relative.parts[0].removesuffix(".py")
        if own == "__init__":
            continue  # The front door names every room, and opens them one by one.
        assert own in height, f"{own} has no place in the order of rooms"
        for other in imports_of(path):
            if other in height and height[other] > height[own]:
                wrong.append(f"{relative} imports {other}")
    assert wrong == []


# What the user's own program may ask to be called with.
USERS_CALLBACKS = {"on_lost": "lock", "on_transition": "guard", "on_changes": "guard"}


def test_nothing_calls_upward_by_a_callback() -> None:
    """
    N-architecture: an `on_…` that a higher folder gives to a lower one is an import upward in disguise.

    Callbacks belong to the program that uses the library, as our own command line does. The library itself
    passes none, except the asynchronous twins, which pass on what they were given.
    """
    library = ORDER[: ORDER.index("aio")]
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        own = relative.parts[0].removesuffix(".py")
        if own not in library or relative.name == "aio.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node, "arg" if isinstance(node, ast.arg) else "attr", "").removeprefix("_")
            if "on_stale" in (name, getattr(node, "arg", "")):
                continue  # An option with that name in the requirements, not a callback.
            if isinstance(node, ast.keyword) and node.arg and node.arg.startswith("on_"):
                wrong.append(f"{relative} passes {node.arg}")
            if name.startswith("on_") and USERS_CALLBACKS.get(name) != own:
                wrong.append(f"{relative} has {name}")
    assert wrong == []


# Names of the first version that nobody could guess the meaning of.
PUZZLING = {
    *("gathering", "foreign", "presence", "tuples", "sight", "foresight", "glance", "glances", "looking"),
    *(
        "meanwhile",
        "aftermath",
        "checkup",
        "endings",
        "survey",
        "places",
        "words",
        "hand",
        "utils",
        "helpers",
    ),
    *("manager", "common"),
}


def test_the_tree_is_the_architecture() -> None:
    """finding C2: four modules and the folders of the order at the top; no name that explains nothing."""
    top = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert {path.stem for path in PACKAGE.glob("*.py")} == {"__init__", "__main__", "aio", "errors"}
    assert top - {"__init__", "__main__"} <= set(ORDER)
    assert {path.stem for path in PACKAGE.rglob("*.py")} & PUZZLING == set()


def test_a_class_name_has_one_meaning() -> None:
    """N-architecture, finding C2: a reader who greps for a class finds one; asynchronous twins share a name."""
    homes: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name == "aio.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def test_a_claim_is_the_reservation_of_a_hook_and_nothing_else() -> None:
    """finding C2: the lock's own way to arbitrate is called a bid; docs/glossary.md says what a claim is."""
    others = ("core", "text", "disk", "ledger", "lock", "shell")
    spoken_of = [
        f"{path.relative_to(PACKAGE)}:{number}"
        for folder in others
        for path in sorted((PACKAGE / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "claim" in line.lower() and "CLAIMS_FOLDER" not in line
    ]
    assert spoken_of == []
    assert "claim" not in (PACKAGE.parents[1] / "docs/lock/protocol.md").read_text().lower()


# Tests of a whole folder, or of a property that no single file has. Everything else is named as its source.
SCENARIOS = {
    *(
        "races",
        "several_machines",
        "failover",
        "faults",
        "late_writers",
        "properties",
        "macos",
        "access",
        "bad_input",
        "power_cut",
        "terminal",
        "ordinary_user",
        "lock_suite",
    ),
    *(
        "snapshot_model",
        "turn_with_lock",
        "what_was_seen",
        "formatters",
        "approval_window",
        "merging_outside",
        "one_snapshot",
        "command_reads",
        "worked_on",
        "reruns",
    ),
    *("containers", "host_versions", "failover", "durable", "reference", "arguments"),
}
WITHOUT_SOURCE = {"data", "e2e", "frameworks", "rigs", "torture", "models", "fuzz", "score", "promises"} | {
    "security"
}


def test_tests_are_found_by_the_name_of_what_they_test() -> None:
    """finding C8: tests/<folder>/test_<file>.py; `test_<folder>.py` is about the folder's front door."""
    tests = Path(__file__).parent
    astray = []
    for path in sorted(tests.rglob("test_*.py")):
        folder = path.parent.relative_to(tests)
        if folder == Path() or folder.parts[0] in WITHOUT_SOURCE:
            continue
        name = path.stem.removeprefix("test_")
        source = PACKAGE / folder
        is_named = (source / f"{name}.py").exists() or (source / name / "__init__.py").exists()
        if not (source / "__init__.py").exists() or not (is_named or name in {folder.name, *SCENARIOS}):
            astray.append(str(path.relative_to(tests)))
    assert astray == []


MAY_USE_OTHERS = ["demo", "cli", "mcp", "adapters", "postgres"]


def test_the_core_imports_the_standard_library_only() -> None:
    """N-dependencies: a hook is a process per tool call, and import time is its latency."""
    foreign = set()
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0].removesuffix(".py") in MAY_USE_OTHERS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                names = [node.module]
            tops = {name.split(".")[0] for name in names}
            foreign |= {
                f"{path.name}: {top}"
                for top in tops - sys.stdlib_module_names - {"noclobber", "_sha2", "_sha256"}
            }
    assert foreign == set()


def test_what_type_checkers_see_is_what_is_there() -> None:
    """N-typed: the block for type checkers and the table of lazy names say the same."""
    source = (PACKAGE / "__init__.py").read_text()
    seen = dict(re.findall(r"^    from noclobber\.([\w.]+) import (\w+) as \2$", source, re.M))
    assert {
        name: home
        for home, name in re.findall(r"^    from noclobber\.([\w.]+) import (\w+) as \2$", source, re.M)
    } == noclobber._HOMES
    assert seen


@pytest.mark.parametrize("name", [name for name in noclobber.__all__ if name != "__version__"])
def test_every_public_name_loads_and_is_documented(name: str) -> None:
    """N-documented: it has a docstring of its own, and a line in docs/api.md."""
    value = getattr(noclobber, name)
    assert value.__doc__
    assert f"`{name}`" in (PROJECT / "docs/api.md").read_text()
    if name.endswith("Error") and name not in ("NoclobberError", "RefusalError"):
        errors = (PROJECT / "docs/errors.md").read_text()
        assert f"`{name}`" in errors
        if value.code != "STALE_FILE":  # It has a section of its own.
            assert f"| `{value.code}` | `{name}` |" in errors
            line = next(line for line in errors.splitlines() if line.startswith(f"| `{value.code}` |"))
            assert line.endswith(f"| `{value.resolution}` |")


def test_readmes_code_runs_when_pasted(tmp_path: Path) -> None:
    """N-readme: the twenty lines work, and print what they say."""
    blocks = re.findall(r"```python\n(.*?)```", (PROJECT / "README.md").read_text(), re.S)
    assert blocks
    for block in blocks:
        done = subprocess.run(
            [sys.executable, "-c", block], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        first = done.stdout.splitlines()[0]
        assert json.loads(first)["error_type"] == "STALE_FILE"
        assert "- call Ada first\n- write the tests\n" in done.stdout


def test_links_in_the_documents_lead_somewhere() -> None:
    """N-documented: a file that is named exists."""
    broken = []
    for page in [*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")
    assert broken == []


def test_architecture_names_every_file_of_the_disk_room() -> None:
    """N-documented: the map has no white spots."""
    text = (PROJECT / "ARCHITECTURE.md").read_text()
    missing = [
        path.stem
        for path in (PACKAGE / "disk").glob("*.py")
        if path.stem != "__init__" and f"`{path.stem}`" not in text
    ]
    assert missing == []


def test_the_package_imports_nothing_before_it_is_used() -> None:
    """N-speed: `import noclobber` alone loads none of the rooms, but for what makes a fork wait (finding R9)."""
    code = "import sys, noclobber; print(*[m for m in sys.modules if m.startswith('noclobber.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"noclobber.disk", "noclobber.disk.forks"}


def _named_in_the_walks() -> list[str]:
    """The functions and classes that ARCHITECTURE.md walks through: `folder/module.name`."""
    text = (PROJECT / "ARCHITECTURE.md").read_text()
    walks = text[text.index("### One write, hop by hop") : text.index("## Where to change what")]
    return re.findall(r"`((?:\w+/)+\w+\.[\w.]+)`", walks)


def test_the_walks_in_the_architecture_name_what_exists() -> None:
    """N-documented: each hop of a write, a hook call and a lock acquisition is a function or a class."""
    named = _named_in_the_walks()
    assert len(named) > 25
    missing = []
    for name in named:
        module_path, _, rest = name.partition(".")
        module = importlib.import_module("noclobber." + module_path.replace("/", "."))
        found: object = module
        for part in rest.split("."):
            found = getattr(found, part, None)
        if found is None:
            missing.append(name)
    assert missing == []


def test_the_architecture_names_files_that_exist() -> None:
    """N-documented: "Where to change what" leads to a file or a folder."""
    text = (PROJECT / "ARCHITECTURE.md").read_text()
    table = text[text.index("## Where to change what") : text.index("## The folders")]
    named = re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", table)
    assert len(named) > 10
    assert [name for name in named if not (PACKAGE / name).exists()] == []


# What belongs to the engine, by the name that it is imported by: where else it may be named, and what that would be.
CARRY_OUT = ("disk/commit/", "postgres/section", "guard/outside.py")  # Committed; or foreseen and compared.
JUDGE = ("guard/judge.py", "guard/policies.py")
PRELOADS = ("guard/loaded_early.py", "hook/standby.py", "cli/run.py")  # Loaded early, and not called.
SPELLS = (
    "core/wire.py",
    "hosts/install.py",
    "errors.py",
)  # Reads one again; a setting of a host is no change.
ENGINES = {
    "noclobber.guard.policies": ((*JUDGE, *PRELOADS), "asks the policies"),
    "noclobber.errors.StaleFileError()": (
        (*JUDGE, *CARRY_OUT, *SPELLS),
        "says by itself that something is stale",
    ),
    "noclobber.guard.claims.check": (("guard/",), "looks for claims"),
    "noclobber.guard.claims.refuse_if_claimed": (("guard/fence.py",), "looks for claims"),
    "noclobber.guard.claims.refuse_if_any_claimed": (("guard/fence.py",), "looks for claims"),
    # With an id that a client gives: which lock does it open?
    "noclobber.lock.locked_folder": (
        ("guard/fence.py", "lock/", "postgres/section", "mcp/connection.py", *PRELOADS),
        "looks for locks",
    ),
    "fence.check()": (("guard/judge.py",), "asks claims and locks"),
}


def departures_from_the_engine(name: str, source: str) -> list[str]:
    """Return where a module does what only the engine does: under another name, or by a name in a string, too."""
    named: dict[str, str] = {}
    found = []

    def note(node: ast.AST, what: str) -> None:
        for of_the_engine, (places, does) in ENGINES.items():
            is_it = what == of_the_engine or what.startswith(f"{of_the_engine}.")
            is_it = is_it or (of_the_engine == "fence.check()" and what.endswith("fence.check()"))
            if is_it and not name.startswith(places):
                found.append(f"{name}:{getattr(node, 'lineno', 0)} {does}")

    def full(spelled: str) -> str:
        head, _, rest = spelled.partition(".")
        return f"{named.get(head, head)}{'.' if rest else ''}{rest}"

    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                named[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
                note(node, alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                named[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                note(node, f"{node.module}.{alias.name}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.Attribute)):
            named |= {
                each.id: full(ast.unparse(node.value)) for each in node.targets if isinstance(each, ast.Name)
            }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            note(node, f"{full(ast.unparse(node.func))}()")
        elif isinstance(node, ast.Attribute):
            note(node, full(ast.unparse(node)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            note(node, node.value if node.value.startswith("noclobber.") else f"noclobber.{node.value}")
    return found


def test_one_engine_judges_whatever_the_way_in() -> None:
    """finding C12: outside of it nobody asks a policy, says that a change is stale, or asks claims and locks."""
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        wrong += departures_from_the_engine(str(path.relative_to(PACKAGE)), path.read_text())
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "source",
    [
        "from noclobber.guard import policies",
        "import noclobber.guard.policies",
        "import noclobber.guard.policies as rules",
        "from noclobber.guard.policies import decide",
        "from importlib import import_module\nimport_module('noclobber.guard.policies').decide(facts)",
        "import noclobber.guard\nnoclobber.guard.policies.decide(facts)",
        "import noclobber\nrules = noclobber.guard\nrules.policies.decide(facts)",
        "from noclobber.errors import StaleFileError\nraise StaleFileError('a', 'b', 'c')",
        "from noclobber.errors import StaleFileError as Old\nraise Old('a', 'b', 'c')",
        "from noclobber.errors import StaleFileError\nOld = StaleFileError\nraise Old('a', 'b', 'c')",
        "from noclobber import errors\nraise errors.StaleFileError('a', 'b', 'c')",
        "turn.fence.check(path)",
        "fence.check(path)",
        "from noclobber.guard.claims import refuse_if_claimed",
        "from noclobber.guard import claims as held\nheld.refuse_if_claimed(root, path)",
        "from noclobber.lock.locked_folder import locked_folder",
    ],
)
def test_what_only_the_engine_does_is_found_by_any_name(source: str) -> None:
    """finding C12: an alias, or a module's name in a string, hides nothing."""
    assert departures_from_the_engine("view/status.py", source)
    assert not departures_from_the_engine("view/status.py", "try:\n    f()\nexcept StaleFileError:\n    pass")
