"""A framework that is missing, or too old."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType

import pytest

import noclobber.adapters
from noclobber import BadRequestError
from noclobber.adapters import _GONE, extra, gone
from noclobber.adapters.shared import run_turns

FOLDER = Path(noclobber.adapters.__file__).parent
PROJECT = Path(__file__).parents[2]
ADAPTERS = sorted(path.stem for path in FOLDER.glob("*.py") if "with extra(" in path.read_text())
FRAMEWORKS = {
    *("agent_framework", "agents", "claude_agent_sdk", "crewai", "deepagents", "google", "langchain"),
    *(
        "langchain_community",
        "langchain_core",
        "langgraph",
        "mcp",
        "opentelemetry",
        "pydantic",
        "pydantic_ai",
    ),
    *("pydantic_core",),
}


class NoFrameworks(MetaPathFinder):
    """As if none of them were installed."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname.split(".")[0] in FRAMEWORKS:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


@pytest.fixture
def _without_frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        is_adapter = name.startswith("noclobber.adapters.") and name.rpartition(".")[2] in ADAPTERS
        if is_adapter or name.split(".")[0] in FRAMEWORKS:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [NoFrameworks(), *sys.meta_path])


def test_every_framework_has_an_adapter_that_names_its_extra() -> None:
    """N-frameworks: what the next test goes through is all of them; a new one cannot be forgotten."""
    imports = re.compile(rf"^(?:from|import) (?:{'|'.join(sorted(FRAMEWORKS))})\b", re.M)
    assert [path.stem for path in FOLDER.glob("*.py") if imports.search(path.read_text())] == []
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {
        re.findall(r'with extra\("([\w-]+)"', (FOLDER / f"{name}.py").read_text())[0] for name in ADAPTERS
    }
    assert named == extras.keys() - {"completion", "mcp", "rich", "postgres", "all"}


@pytest.mark.usefixtures("_without_frameworks")
@pytest.mark.parametrize("name", ADAPTERS)
def test_a_framework_that_is_missing_is_named_with_its_extra(name: str) -> None:
    """N-frameworks: a program that tries the import still catches the same exception."""
    [wanted] = re.findall(r'with extra\("([\w-]+)"', (FOLDER / f"{name}.py").read_text())
    with pytest.raises(ModuleNotFoundError, match="is not installed") as caught:
        importlib.import_module(f"noclobber.adapters.{name}")
    assert f"pip install 'noclobber[{wanted}]'" in str(caught.value)
    assert caught.value.name.split(".")[0] in FRAMEWORKS


def test_a_framework_in_another_version_is_named_with_its_extra() -> None:
    """N-frameworks: what an adapter imports is not there any more, or not yet."""
    said = r"version of json .* does not fit: cannot import name 'Backend'.*pip install 'noclobber\[deepagents\]'"
    with pytest.raises(ImportError, match=said) as caught, extra("deepagents"):
        from json import Backend  # type: ignore[attr-defined]  # noqa: F401
    assert not isinstance(caught.value, ModuleNotFoundError)
    with (
        pytest.raises(ModuleNotFoundError, match=r"'noclobber\[x\]' langchain-community"),
        extra("x", "langchain-community"),
    ):
        import no_such_package  # type: ignore[import-not-found]  # noqa: F401


@pytest.mark.parametrize(("framework", "name"), [(f, name) for f, names in _GONE.items() for name in names])
def test_a_name_that_is_gone_is_an_error_that_says_what_to_do(framework: str, name: str) -> None:
    """N-frameworks: a program of yesterday is told its way, and not that a name cannot be imported."""
    text = (FOLDER / f"{framework}.py").read_text()
    assert "__getattr__ = gone(__name__)" in text
    missing = gone(f"noclobber.adapters.{framework}")
    with pytest.raises(ImportError, match=rf"{framework}\.{name} is gone\. Instead, .*no-framework\.md"):
        missing(name)
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        missing("other")


def test_what_is_said_of_tools_of_ones_own_is_an_error_that_says_what_to_do(root: Path) -> None:
    """N-frameworks: dropped without a word, a tool would be unguarded."""
    with pytest.raises(BadRequestError, match=r"by a turn: docs/frameworks/no-framework\.md"):
        run_turns(root, "x", tools=[])  # type: ignore[call-arg]
