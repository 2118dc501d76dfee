"""Options: what is accepted, and how a mistake is explained."""

from __future__ import annotations

import ast
import inspect
import re
import typing
from pathlib import Path
from typing import Any

import pytest

from noclobber.core import options as module
from noclobber.core.options import DEFAULTS, HOOK_DEFAULTS, Options, load_options, options
from noclobber.errors import BadRequestError


def test_the_defaults_are_those_of_the_specifications() -> None:
    """Rulings 2, 7, 11 and 14."""
    assert (DEFAULTS.rebaseline, DEFAULTS.unread, DEFAULTS.partial, DEFAULTS.scope) == (
        "on-read",
        "allow",
        "allow",
        "turn",
    )
    assert (DEFAULTS.retained_file_bytes, DEFAULTS.retained_turn_bytes) == (1 << 20, 64 << 20)


@pytest.mark.parametrize(
    "good",
    [
        {"rebaseline": "after-conflict"},
        {"unread": "deny", "partial": "deny", "resubmitted": "deny"},
        {"scope": "session"},
        {"durable": True, "wait_s": 0},
        {"wait_s": 0.25},
        {"wait_s": 3600},
        {"retained_file_bytes": 0},
        {"retained_file_bytes": 1, "retained_turn_bytes": 1 << 40},
        {"write_scope": None},
        {"write_scope": []},
        {"unchecked": ["out", ".svelte-kit", "!build"]},
        {"unchecked": []},
    ],
)
def test_good_options_are_taken(good: dict[str, Any]) -> None:
    """Rulings 2, 7, 11, 14: each has its option."""
    changed = options(good)._asdict()
    for name, value in good.items():
        assert changed[name] == value or changed[name] == tuple(value)


def test_folders_may_be_paths() -> None:
    """K-WRITE-1."""
    assert options({"write_scope": [Path("docs"), "src"]}).write_scope == ("docs", "src")


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"unraed": "deny"}, "Did you mean 'unread'?"),
        ({"colour": "red"}, "There are: rebaseline"),
        ({"unread": "maybe"}, "'allow', 'deny'"),
        ({"rebaseline": None}, "'on-read', 'after-conflict'"),
        ({"scope": ["docs"]}, "'turn', 'session'"),
        ({"durable": 1}, "True or False"),
        ({"unread": "deny", "partial": "maybe"}, "The option partial must be"),
        ({"wait_s": -1}, "0 to 3600"),
        ({"wait_s": -0.001}, "0 to 3600"),
        ({"wait_s": 3600.001}, "0 to 3600"),
        ({"wait_s": "1"}, "0 to 3600"),
        ({"wait_s": float("nan")}, "0 to 3600"),
        ({"wait_s": True}, "0 to 3600"),
        ({"retained_file_bytes": -1}, "0 or more"),
        ({"retained_turn_bytes": 1.5}, "0 or more"),
        ({"retained_turn_bytes": True}, "0 or more"),
        ({"unchecked": "out"}, "The option unchecked must be a list of names of folders, not 'out'"),
        ({"unchecked": ["out", 1]}, "a list of names of folders"),
        ({"unchecked": [""]}, "a list of names of folders"),
        ({"unchecked": ["!"]}, "a list of names of folders"),
        ({"unchecked": ["a\0b"]}, "a list of names of folders"),
        ({"unchecked": None}, "a list of names of folders"),
        ({"unchecked": ["out/"]}, "without /, "),
        ({"unchecked": ["!web/dist"]}, "without /, "),
        ({"unchecked": ["cache-*"]}, "without /, "),
        ({"unchecked": [".git"]}, "names of folders other than ., .., .git, .noclobber"),
        ({"unchecked": [".noclobber"]}, "names of folders other than ., .., .git, .noclobber"),
        ({"unchecked": ["."]}, "names of folders other than ., .., .git, .noclobber"),
        ({"unchecked": ["!.."]}, "names of folders other than ., .., .git, .noclobber"),
        ({"unchecked": ["!biuld"]}, "with ! before built-in ones only"),
        ({"write_scope": "docs"}, "a list of folders"),
        ({"write_scope": [""]}, "a list of folders"),
        ({"write_scope": [1]}, "a list of folders"),
        ({"write_scope": 7}, "a list of folders"),
        ({"write_scope": ["a\0b"]}, "a list of folders"),
        ({"resubmitted": "never"}, "'allow', 'deny'"),
    ],
)
def test_bad_options_are_explained(bad: dict[str, Any], said: str) -> None:
    """N-codes: errors that say what was meant."""
    with pytest.raises(BadRequestError, match=said.replace("?", r"\?")):
        options(bad)


def test_a_value_of_any_size_is_explained_in_a_short_sentence() -> None:
    """N-input: an error message is no place for a megabyte; up to 80 characters are shown."""
    for length, shown in (
        (78, "'" + "x" * 78 + "'"),
        (79, "'" + "x" * 78 + "…"),
        (1 << 20, "'" + "x" * 78 + "…"),
    ):
        with pytest.raises(BadRequestError) as refused:
            options({"unread": "x" * length})
        assert refused.value.message == f"The option unread must be one of 'allow', 'deny', not {shown}."


def test_the_nearest_name_is_suggested() -> None:
    """finding U8: the nearest one, not just one that is near."""
    with pytest.raises(BadRequestError, match="Did you mean 'retained_turn_bytes'") as refused:
        options({"retained_turn_byte": 1})
    assert refused.value.details["option"] == "retained_turn_byte"


def test_given_options_change_their_base_and_leave_the_rest() -> None:
    """Ruling 20: a turn's options over the workspace's, and those over the file's."""
    base = options({"unread": "deny", "wait_s": 7})
    assert options({"partial": "deny"}, base) == base._replace(partial="deny")
    assert options({"unread": "allow"}, base) == Options(wait_s=7.0)
    assert options({}, base) == base
    assert (DEFAULTS.wait_s, DEFAULTS.durable, DEFAULTS.write_scope) == (1.0, False, None)
    assert Options(scope="session") == HOOK_DEFAULTS


@pytest.mark.parametrize("name", ["noclobber.toml", "pyproject.toml"])
def test_either_file_changes_the_base(tmp_path: Path, name: str) -> None:
    """Ruling 20: one of the two is enough; without any, or without our table in it, the base is the answer."""
    base = options({"unread": "deny", "durable": True})
    assert load_options(str(tmp_path), base) is base
    table = "" if name == "noclobber.toml" else "[tool.noclobber]\n"
    (tmp_path / name).write_text(f'{table}unread = "allow"\npartial = "deny"\n')
    assert load_options(str(tmp_path), base) == Options(partial="deny", durable=True)
    assert load_options(str(tmp_path)) == Options(partial="deny")
    (tmp_path / name).write_text("")
    assert load_options(str(tmp_path), base) == base


def test_a_number_stays_what_it_is_and_seconds_become_a_float() -> None:
    """Ruling 20: TOML's `wait_s = 2` and Python's 2.0 are one value."""
    taken = options({"wait_s": 2, "retained_file_bytes": 5})
    assert (type(taken.wait_s), taken.retained_file_bytes) == (float, 5)


# One list, in three shapes: for programs, for type checkers and for readers.


def fields_of(name: str) -> dict[str, tuple[str, str]]:
    """Return the fields of a class in options.py: annotation, and the sentence below it."""
    tree = ast.parse(inspect.getsource(module))
    [found] = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name]
    fields: dict[str, tuple[str, str]] = {}
    for node, below in zip(found.body, [*found.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = (
                below.value.value
                if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
                else ""
            )
            fields[node.target.id] = (ast.unparse(node.annotation), str(text))
    return fields


def test_type_checkers_know_the_same_options() -> None:
    """finding U8: in the same order, with the same values; only lists may be given in more ways."""
    told = {name: annotation for name, (annotation, _) in fields_of("OptionValues").items()}
    taken = {name: annotation for name, (annotation, _) in fields_of("Options").items()}
    assert list(told) == list(taken) == list(Options._fields)
    for name in ("write_scope", "reserved"):
        assert told.pop(name) == "Iterable[str | os.PathLike[str]] | None"
        assert taken.pop(name) == "tuple[str, ...] | None"
    for name in ("never_merge", "formatters", "unchecked", "versions_exclude"):
        assert (told.pop(name), taken.pop(name)) == ("Iterable[str]", "tuple[str, ...]")
    assert told == taken


@pytest.mark.parametrize("name", Options._fields)
def test_every_option_is_checked_as_its_type_says(name: str) -> None:
    """finding U8: the choices of a `Literal`, and nothing else, are accepted; so is the default."""
    annotation = fields_of("Options")[name][0]
    kind: Any = eval(annotation, {"Literal": typing.Literal})
    accepted = typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()
    for value in (*accepted, getattr(DEFAULTS, name)):
        assert getattr(options({name: value}), name) == value
    for value in (object(), "neither of them", -1, b"", {1: object()}):
        with pytest.raises(BadRequestError, match=f"The option {name} must be "):
            options({name: value})
    assert list(module._CHECKS) == list(Options._fields)


def test_every_option_is_explained_in_one_sentence() -> None:
    """finding U8: below the field, and the same in docs/options.md."""
    page = (Path(__file__).parents[2] / "docs/options.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", page, re.M)
    explained = {name: sentence for name, (_, sentence) in fields_of("Options").items()}
    assert [(name, meaning) for name, _, _, meaning, _ in rows] == list(explained.items())
    for name, values, default, _, _ in rows:
        choices = re.findall(r"'([^']+)'", fields_of("Options")[name][0])
        assert re.findall(r'"([^"]+)"', values) == choices
        if choices:
            assert default == f'`"{getattr(DEFAULTS, name)}"`'
    assert all(re.fullmatch(r"[A-Z][^.]*\.", sentence) for sentence in explained.values())
