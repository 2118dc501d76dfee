"""What stands in for the slow parts of the standard library on a hook's path behaves like them."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noclobber.core.light import c_library, json_text, own_modules
from noclobber.core.light.globs import Globs, fits

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(value=VALUES)
def test_json_goes_out_and_comes_back(value: Any) -> None:
    """The same text as the `json` package, and the same value from it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert json_text.spell(value) == text
    assert json_text.parse(text) == value
    assert json_text.parse(json.dumps(value, indent=2)) == value
    assert json_text._slow_writer()(value) == text
    assert json_text._slow_reader()(text, 0)[0] == value


@pytest.mark.parametrize(
    "text",
    [b"", b" ", b"{", b"{}x", b"\xff", b"NaN", b"[Infinity]", b"[" * 100_000, b'{"a":' * 50_000, b"'a'"],
)
def test_what_is_not_json_is_a_value_error(text: bytes) -> None:
    """N-input: never anything but a ValueError."""
    with pytest.raises(ValueError):
        json_text.parse(text)


def test_what_json_has_no_word_for_is_an_error() -> None:
    """NaN, bytes, objects."""
    for number in (float("nan"), float("inf")):
        with pytest.raises(ValueError):
            json_text.spell(number)
    for value in (b"x", object()):
        with pytest.raises(TypeError):
            json_text.spell(value)


def test_a_byte_order_mark_is_not_part_of_the_text() -> None:
    """Some hosts send one."""
    assert json_text.parse(b"\xef\xbb\xbf {} \n") == {}


WORDS = st.text("ab.*", max_size=8)


@given(WORDS, WORDS | st.text("ab*?[]!-", max_size=6))
def test_a_name_fits_a_pattern_as_fnmatch_says(name: str, pattern: str) -> None:
    """N-versions: which versions are kept does not depend on what was loaded."""
    assert fits(name, pattern) == fnmatchcase(name, pattern)
    assert Globs([pattern, "c*"]).fit(name) == fnmatchcase(name, pattern)


@given(VALUES)
def test_ascii_json_is_spelled_as_the_json_package_does(value: object) -> None:
    """N-speed: the notes of commits hold the same bytes as before."""
    assert json_text.spell_in_ascii(value) == json.dumps(value, separators=(",", ":"))


def test_calls_into_the_c_library_take_ints_bytes_and_addresses() -> None:
    """N-speed: as with ctypes; a function that is not there is None, and errors are told."""
    length, close = c_library.function("strlen"), c_library.function("close")
    assert length is not None
    assert close is not None
    assert length(b"four") == 4
    memory = c_library.PlacedBytes(b"five5\0")
    assert length(c_library.LONG(memory.address)) == 5
    assert close(-1) == -1
    assert c_library.get_errno() == errno.EBADF
    assert c_library.function("no_such_function_at_all") is None


def test_own_modules_are_found_as_python_finds_them(tmp_path: Path) -> None:
    """N-speed: a changed source counts at once, compiled forms are used and made, other packages are left alone."""
    package = tmp_path / "noclobber"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "inner/__init__.py").write_text("")
    program = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {source_folder()!r}]\n"
        "import importlib.util, noclobber\n"
        "spec = importlib.util.spec_from_file_location('own', sys.argv[1])\n"
        "own = importlib.util.module_from_spec(spec); spec.loader.exec_module(own); own.use()\n"
        "import json.tool\n"
        "from noclobber.inner import leaf\n"
        "print(leaf.VALUE, leaf.__file__, leaf.__cached__, type(leaf.__loader__).__name__,"
        " json.tool.__file__ is not None, noclobber.inner.__path__)"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for value in ("1", "2", "2"):
        leaf = package / "inner/leaf.py"
        leaf.write_text(f"VALUE = {value}{'0' * int(value)}\n")
        done = subprocess.run(
            [sys.executable, "-S", "-c", program, own_modules.__file__],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        said = done.stdout.split(" ", 4)
        assert said[0] == value + "0" * int(value)
        assert said[1] == str(leaf)
        assert Path(said[2]).is_file()
        assert said[3] == "_Loader"


def test_os_without_its_slow_classes_is_os_all_the_same() -> None:
    """N-speed: what the environment can do, and who loads the real classes later, is as ever."""
    program = """if True:
        import importlib.machinery, sys
        for name in ("os", "_collections_abc"):
            sys.modules.pop(name, None)
        own = importlib.machinery.SourceFileLoader("own", sys.argv[1]).load_module()
        own.load_os()
        assert "_collections_abc" not in sys.modules
        import os
        os.environ.pop("LC_CTYPE", None)  # Python's own.
        assert os.environ.get("A") == os.environ["A"] == "1" and "A" in os.environ and "B" not in os.environ
        assert os.environ.get("B") is None and os.environ.get("B", 7) == 7
        os.environ.update(C="3"); os.environ.setdefault("D", "4")
        assert os.environ.pop("C") == "3" and os.environ.pop("C", None) is None
        assert {**os.environ} == dict(os.environ.items()) == os.environ.copy() == {"A": "1", "D": "4"}
        assert sorted(os.environ) == sorted(os.environ.keys()) == ["A", "D"] and len(os.environ) == 2
        assert (os.environ | {"A": "2"})["A"] == "2" and (os.environ | os.environ)["A"] == "1"
        if not os.fork():
            os.execve("/bin/sh", ["sh", "-c", "test $A$D = 14"], os.environ)
        assert os.wait()[1] == 0
        import collections.abc, pathlib, json, subprocess
        assert isinstance({}, collections.abc.MutableMapping) and os.fspath(pathlib.Path("/a")) == "/a"
        assert subprocess.run(["/bin/sh", "-c", "test $A = 1"], env=os.environ).returncode == 0
        try:
            os.environ.nothing
        except AttributeError:
            print("as ever")
    """
    python = os.path.realpath(sys.executable)
    done = subprocess.run(
        [python, "-I", "-S", "-W", "ignore", "-c", program, own_modules.__file__],
        env={"A": "1"},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("as ever\n", "")


def source_folder() -> str:
    return own_modules.__file__.rpartition("/noclobber/")[0]


@pytest.mark.parametrize("text", ["1e999", '{"a": [-1e999]}'])
def test_a_number_that_is_read_can_be_written_again(text: str) -> None:
    """N-cli: `1e999` becomes infinity, which no JSON has: one such number ended every list it was in."""
    with pytest.raises(ValueError, match="too large"):
        json_text.parse(text)
    assert json_text.parse("1e308") == 1e308
