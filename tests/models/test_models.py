"""The models of `models/` are about the code as it is, and a short search of them is part of every test run."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROJECT = Path(__file__).parents[2]
SOURCE = PROJECT / "src" / "noclobber"
MODELS = sorted((PROJECT / "models").glob("*.pml"))

# What each model is about: files of the package, and the named steps that need no place in it.
FILES = {
    "commit": [
        f"disk/commit/{name}.py"
        for name in ("committer", "section", "swap", "restore", "recovery", "displaced_copy", "journal")
    ],
    "many": [
        f"disk/commit/{name}.py"
        for name in ("change_set", "section", "swap", "restore", "recovery", "journal")
    ],
    "lock": ["lock/file_arbiter.py", "lock/lock_file.py", "lock/liveness.py"],
    "nested": ["lock/nested.py", "lock/file_arbiter.py", "lock/lock_file.py"],
}
NOT_MODELLED = {
    "commit": {"staging", "creating", "created"},  # A creation is a single `link`.
    "many": {  # In commit.pml.
        *("entered", "staging", "staged", "leased", "verified", "before-exchange", "copying"),
    },
    # In nested.pml; what a coordinator says after that is in its own tests.
    "lock": {"lock-looked-again", "lock-confirmed"},
    "nested": {  # In lock.pml.
        *("lock-bid", "lock-verified", "lock-replaced"),
        *("lock-release-bid", "lock-removed", "lock-undisputed", "lock-confirmed"),
    },
}


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_models", PROJECT / "tools" / "check_models.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_models"] = module
    spec.loader.exec_module(module)
    return module


def tags(model: Path, kind: str) -> set[str]:
    """Return the names behind `step:` or `function:` in a model's comments."""
    found: set[str] = set()
    for comment in re.findall(r"/\*(.*?)\*/", model.read_text(), re.S):
        for names in re.findall(rf"\b{kind}s?: ([\w-]+(?:, [\w-]+)*)", comment):
            found |= {name for name in names.split(", ") if name != "step"}
    return found


def code_of(model: Path) -> str:
    return "\n".join((SOURCE / name).read_text() for name in FILES[model.stem])


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.stem)
def test_every_step_of_a_model_is_a_named_step_of_the_code_and_the_other_way_round(model: Path) -> None:
    """N-proof: neither the model nor the code moves without the other."""
    named = set(re.findall(r'reached\("([\w-]+)"\)', code_of(model)))
    assert tags(model, "step") == named - NOT_MODELLED[model.stem]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.stem)
def test_every_function_that_a_model_names_is_in_the_code(model: Path) -> None:
    """N-proof: a function that is renamed or removed takes its place in the model along."""
    defined = set(re.findall(r"^ *def (\w+)", code_of(model), re.M))
    assert len(tags(model, "function")) > 5
    assert tags(model, "function") - defined == set()


def test_every_mutation_in_a_model_is_part_of_make_model() -> None:
    """N-proof: a model whose mutations nobody runs proves nothing."""
    run = {(run.model, run.mutation) for run in tool().runs() if run.mutation}
    written = {
        (model.stem, name)
        for model in MODELS
        for name in re.findall(r"^#ifn?def (MUTATE_\w+)", model.read_text(), re.M)
    }
    assert run == written
    assert {model for model, _ in run} == set(FILES) == {model.stem for model in MODELS}


@pytest.mark.slow
@pytest.mark.xdist_group("models")
@pytest.mark.parametrize(
    "run", [run for run in tool().runs() if run.is_short], ids=lambda run: " ".join(run.defines)
)
def test_a_model_holds_in_every_interleaving_and_its_mutations_are_convicted(run: object) -> None:
    """N-proof: two processes, an outsider and a crash; `make model` searches three as well."""
    models = tool()
    if reason := models.missing():
        pytest.skip(reason)
    fine, words = models.verdict(run, models.check(run))
    assert fine, words
