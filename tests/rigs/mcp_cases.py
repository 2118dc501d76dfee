"""
Calls that the reference server and ours must answer alike, in scenes that each start from the same files.

`{root}`, `{two}` and `{out}` stand for the first root, the second, and a folder outside both.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

LINES = "".join(f"line {number}\n" for number in range(1, 31))


def build(folder: Path) -> dict[str, str]:
    """Make the files of a scene anew; return what the placeholders stand for."""
    shutil.rmtree(folder, ignore_errors=True)
    root, two, out = (folder / name for name in ("root", "two", "out"))
    for made in (
        root,
        two,
        out,
        root / "sub/deep",
        root / "sub/.git",
        root / "sub/node_modules",
        root / "void",
    ):
        made.mkdir(parents=True)
    contents: dict[str, bytes] = {
        "a.txt": b"one\ntwo\nthree\n",
        "crlf.txt": b"one\r\ntwo\r\n",
        "bin": b"\xff\xfe\x00a\xef\xbb\xbf",
        "bom.txt": b"\xef\xbb\xbfhi\n",
        "bare.txt": b"first\nlast",
        "empty": b"",
        "lines.txt": LINES.encode(),
        "code.py": b"class A:\n    def f(self):\n        return 1\n\n    def g(self):\n        return 2\n",
        "fence.md": b"```py\nx\n```\n",
        "p.png": b"\x89PNG",
        "m.mp3": b"ID3",
        "z.zip": b"PK",
        "u.SVG": b"<svg/>",
        "sub/x.py": b"x",
        "sub/deep/y.py": b"y" * 3000,
        "sub/deep/deeper.txt": b"d",
        "sub/.git/config": b"c",
        "sub/node_modules/m.py": b"m",
        **{f"sub/{name}": name.encode() for name in ("B", "a", "b", "A", "é", "z", "_x", ".hid", "10", "9")},
    }
    for name, content in contents.items():
        (root / name).write_bytes(content)
    (two / "only2.txt").write_text("2")
    (out / "secret").write_text("s")
    links = {
        "in": root / "a.txt",
        "out": out / "secret",
        "lost": root / "nope",
        "lost-out": out / "nope",
        "dir-out": out,
        "dir-in": root / "sub",
        "to-two": two / "only2.txt",
        "loop": root / "loop",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "fifo")
    for path in [root, two, two / "only2.txt", *root.rglob("*")]:
        os.utime(path, (1_700_000_000, 1_700_000_000), follow_symlinks=False)
    return {"root": str(root), "two": str(two), "out": str(out)}


def _edit(path: str, *edits: tuple[str, str], **more: Any) -> tuple[str, dict[str, Any]]:
    listed = [{"oldText": old, "newText": new} for old, new in edits]
    return "edit_file", {"path": path, "edits": listed, **more}


def _each(tool: str, key: str, values: list[Any], **more: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(tool, {key: value, **more}) for value in values]


PATHS = [
    "{root}/a.txt", "a.txt", "./a.txt", "sub/x.py", "../two/only2.txt", "only2.txt", "{root}//a.txt",
    "{root}/a.txt/", "{root}/sub", "", ".", "{root}", "{root}/nope", "{root}/no/nope",
    "{root}/a.txt/x", "/etc/passwd", "{root}/../out/secret", "../out/secret", "{root}/a\0b", "~/x", "~", "~x",
    "{root}/" + "x" * 300, "{root}/in", "{root}/out", "{root}/lost", "{root}/lost-out", "{root}/dir-out/secret",
    "{root}/dir-out/no/such", "{root}/dir-in/x.py", "{root}/dir-in/nope", "{root}/to-two", "{root}/loop",
    "{root}/lost/x", "{root}-not", "{two}/only2.txt", "{root}/sub/../a.txt", "{root}/dir-in/../a.txt",
]  # fmt: skip

READING = [
    *_each("read_text_file", "path", [*PATHS, " {root}/a.txt", '"a.txt"']),
    *_each("read_file", "path", ["a.txt", "nope", "sub"], head=1),
    *_each("read_file", "path", ["a.txt", "sub"], tail=1),
    *(
        ("read_text_file", {"path": path, **part})
        for path in ("a.txt", "crlf.txt", "bin", "bom.txt", "bare.txt", "empty", "lines.txt", "nope")
        for part in (
            {}, {"head": 1}, {"head": 2}, {"head": 99}, {"tail": 1}, {"tail": 2}, {"tail": 99}, {"head": 0},
            {"tail": 0}, {"head": -1}, {"tail": -1}, {"head": 1.5}, {"tail": 1.5}, {"tail": 0.5},
        )
    ),
    ("read_text_file", {"path": "a.txt", "head": 1, "tail": 1}),
    ("read_text_file", {"path": "a.txt", "extra": 1}),
    *_each("read_media_file", "path", ["p.png", "m.mp3", "z.zip", "u.SVG", "a.txt", "empty", "sub", "nope"]),
    ("read_multiple_files", {"paths": ["{root}/a.txt", "nope", "/etc/passwd", "sub", "a.txt", "crlf.txt"]}),
    ("read_multiple_files", {"paths": ["bin"]}),
    *_each("get_file_info", "path", PATHS),
    *_each("get_file_info", "path", ["fifo", "empty", "p.png"]),
    ("list_allowed_directories", {}),
    ("list_allowed_directories", {"x": 1}),
]  # fmt: skip

WRONG: list[tuple[str, Any]] = [
    *_each("read_text_file", "path", [5, None, True, [], {}, 1.5]),
    ("read_text_file", {}),
    ("read_text_file", None),
    ("read_text_file", {"path": [1], "head": "x", "tail": {}}),
    *_each("read_multiple_files", "paths", [[], [1, "a.txt"], "x", None]),
    ("read_multiple_files", {}),
    ("write_file", {"path": "w"}),
    ("write_file", {"content": "w"}),
    ("write_file", {"path": "w", "content": 5}),
    ("edit_file", {"path": "a.txt"}),
    *_each("edit_file", "edits", ["x", [5], [{"oldText": "x"}], [{"newText": 1}], {}], path="a.txt"),
    ("edit_file", {"path": "a.txt", "edits": [], "dryRun": "yes"}),
    ("move_file", {"source": 1}),
    ("list_directory_with_sizes", {"path": ".", "sortBy": "x"}),
    ("list_directory_with_sizes", {"path": ".", "sortBy": 1}),
    ("directory_tree", {"path": ".", "excludePatterns": [1]}),
    ("search_files", {"path": "."}),
    ("no_such_tool", {}),
    ("", {}),
]

PATTERNS = [
    "*.py", "**/*.py", "x.py", "*", "**", "py", "X.PY", "deep/*", "deep/**", "**/deep/**", "**/deep", "*.{py,txt}",
    "[ab]", "?", "a*", ".git", "**/.hid", ".*", "**/a", "deep", "{root}/sub/x.py",
    "é", "sub/**", "node_modules/**", "**/config", "[", "{{a,b}}",
    "**/**/y.py", "a**", "*/y.py", "*/*", "[!a]", "[^a]",
    "[a-c]", "[z-a]", "[]a]", "#x", "\\#x", "**/*.{{py,txt}}",
    "{{a,{{b,z}}}}", "{{a}}", "deep/", "**/?", "[_.]x", "{{x,y}}.py", "d{{ee,}}p", "x.p[y]",
    "**/d*/*", "**/*e*", "*.*", "**/.*", "..", ".", "a|b", "(a)", "x?py", "*y*", "**/y*/", "**a", "sub",
]  # fmt: skip
EXCLUDED = [
    ["deep"], ["**/deep/**"], ["*.py"], ["**/*.py"], ["deep/**"], ["deep/*"], ["x.py"], ["node_modules", "deep"],
    ["**"], ["y.py"], [".git", ".hid"], ["**/deep"], ["deep/y.py"], ["*"], ["deep/*.py", "[ab]"],
]  # fmt: skip

LOOKING = [
    *_each("list_directory", "path", PATHS),
    *_each("list_directory", "path", ["sub", "void", "dir-in", "fifo"]),
    *_each("list_directory_with_sizes", "path", ["void", "sub/deep", "a.txt", "nope", "/etc"]),
    *_each("list_directory_with_sizes", "path", ["sub/deep"], sortBy="size"),
    *_each("directory_tree", "path", ["sub", "void", ".", "nope", "a.txt", "dir-in", "/etc"]),
    *_each("directory_tree", "excludePatterns", EXCLUDED, path="sub"),
    *_each("search_files", "pattern", PATTERNS, path="sub"),
    *_each("search_files", "excludePatterns", EXCLUDED, path="sub", pattern="**/*.py"),
    *_each("search_files", "path", [".", "nope", "a.txt", "/etc", "dir-in", "dir-out"], pattern="**/*x*"),
]

WRITING = [
    *_each("write_file", "path", PATHS, content="hé\r\n"),
    *_each("write_file", "path", ["w.txt", "sub/w.txt", "no/w.txt", "w.txt", "empty", "w2/"], content=""),
    ("read_text_file", {"path": "w.txt"}),
    ("read_text_file", {"path": "in"}),
    *_each("create_directory", "path", PATHS),
    *_each("create_directory", "path", ["d1", "d1", "d2/e/f", "void", "dir-in/new"]),
    ("list_directory", {"path": "d2/e"}),
]

MOVING = [
    ("move_file", {"source": "{root}/a.txt", "destination": "{root}/b.txt"}),
    ("move_file", {"source": "b.txt", "destination": "crlf.txt"}),
    ("move_file", {"source": "b.txt", "destination": "sub"}),
    ("move_file", {"source": "sub", "destination": "sub2"}),
    ("move_file", {"source": "nope", "destination": "n2"}),
    ("move_file", {"source": "b.txt", "destination": "no/such/b.txt"}),
    ("move_file", {"source": "b.txt", "destination": "/etc/b"}),
    ("move_file", {"source": "/etc/b", "destination": "q"}),
    ("move_file", {"source": "b.txt", "destination": "{two}/b.txt"}),
    ("move_file", {"source": "in", "destination": "moved"}),
    ("move_file", {"source": "crlf.txt", "destination": "rel.txt"}),
    ("move_file", {"source": "rel.txt", "destination": "rel.txt"}),
    ("move_file", {"source": "sub2", "destination": "sub2/inner"}),
    ("move_file", {"source": "sub2/deep", "destination": "void"}),
    ("move_file", {"source": "sub2/deep", "destination": "{two}/deep"}),
    ("move_file", {"source": "rel.txt", "destination": "lost"}),
    ("move_file", {"source": "rel.txt", "destination": "{root}"}),
    ("move_file", {"source": "fifo", "destination": "fifo2"}),
    ("move_file", {"source": "to-two", "destination": "only"}),
    ("move_file", {"source": "void", "destination": "a.txt/x"}),
    ("directory_tree", {"path": "."}),
    ("directory_tree", {"path": "{two}"}),
]

EDITING = [
    _edit("a.txt", ("two", "TWO"), dryRun=True),
    _edit("a.txt", ("two", "TWO")),
    _edit("{root}/a.txt", ("TWO", "2"), ("2", "two")),
    _edit("a.txt", ("one\ntwo\n", "")),
    _edit("a.txt"),
    _edit("a.txt", ("nope", "x")),
    _edit("a.txt", ("three", "3"), ("nope", "x")),
    _edit("a.txt", ("three", "three")),
    _edit("a.txt", ("", "x")),
    _edit("empty", ("", "x")),
    _edit("bare.txt", ("last", "end")),
    _edit("bare.txt", ("end", "end\n")),
    _edit("bare.txt", ("end\n", "end")),
    _edit("bom.txt", ("hi", "ho")),
    _edit("fence.md", ("x", "`````y")),
    _edit("lines.txt", ("line 3\n", "LINE 3\n"), ("line 20\n", "")),
    _edit("lines.txt", ("line 8", "l8"), ("line 17", "l17")),
    _edit("lines.txt", ("line 4", "l4"), ("line 14", "l14")),
    _edit("lines.txt", ("line 5", "l5"), ("line 16", "l16")),
    _edit("lines.txt", ("line 9\n", "line 9\nline 9\nline 9\n")),
    _edit("lines.txt", ("line 1\n", "zero\nline 1\n"), ("line 30\n", "line 30\nline 31")),
    _edit("code.py", ("def f(self):\n    return 1", "def f(self):\n    x = 1\n    return x")),
    _edit(
        "code.py",
        ("  def g(self):\n  return 2", "  def g(self):\n    if self:\n      return 2\n    return 3"),
    ),
    _edit("code.py", ("class A:\ndef f", "no")),
    _edit("code.py", ("  class A:  ", "class B:")),
    _edit("code.py", ("$&", "$1")),
    _edit("code.py", ("class", "$& $1 $$ $`")),
    *(_edit(path, ("o", "0")) for path in ("nope", "sub", "/etc/hosts", "in", "lost", "no/x", "loop")),
    ("read_text_file", {"path": "a.txt"}),
    ("read_text_file", {"path": "code.py"}),
    ("read_text_file", {"path": "lines.txt"}),
    # Several diffs are equally short here, and other programs choose another one.
    ("write_file", {"path": "gaps.txt", "content": "a\n\n\n"}),
    _edit("gaps.txt", ("a\n", "b\n\n\n")),
    ("write_file", {"path": "same.txt", "content": "\n    if x:\n\n"}),
    _edit("same.txt", ("\n    if x:\n\n", "    y\n\nx = 1\n\n\n    if x:\n    y\n")),
]

SCENES: dict[str, list[tuple[str, Any]]] = {
    "reading": READING,
    "wrong": WRONG,
    "looking": LOOKING,
    "writing": WRITING,
    "moving": MOVING,
    "editing": EDITING,
}


def filled(value: Any, places: dict[str, str]) -> Any:
    """Put real folders in the placeholders' place."""
    if isinstance(value, str):
        for name, path in places.items():
            value = value.replace(f"{{{name}}}", path)
        return value.replace("{{", "{").replace("}}", "}")
    if isinstance(value, list):
        return [filled(item, places) for item in value]
    if isinstance(value, dict):
        return {key: filled(item, places) for key, item in value.items()}
    return value


def normalised(answer: dict[str, Any], places: dict[str, str]) -> dict[str, Any]:
    """Return of an answer what both servers must agree on, without what differs from run to run."""
    kept = {"content": answer.get("content"), "isError": bool(answer.get("isError"))}
    if not kept["isError"]:
        kept["structured"] = answer["structuredContent"]["content"]
    text = json.dumps(kept, ensure_ascii=False, sort_keys=True)
    home = os.path.expanduser("~")
    for name, path in [*places.items(), ("home", home)]:
        text = re.sub(re.escape(path) + r"(?![\w.])", f"<{name}>", text)
    text = re.sub(r"(created|modified|accessed): [^\\\"]*", r"\1: <time>", text)
    text = re.sub(r"(: Error - )(?:(?!\\n---|\").)*", r"\1<why>", text)
    # How large a folder itself is, is the filesystem's business.
    text = re.sub(r"size: \d+(\\n(?:(?!size:).)*?isDirectory: true)", r"size: <any>\1", text)
    # Over a folder: the reference names its temporary file, and we have none.
    text = re.sub(r"(EISDIR: [a-z ]+, rename )'[^']*\.tmp' -> ", r"\1", text)
    result: dict[str, Any] = json.loads(text)
    return result


def tree(folder: Path) -> dict[str, str]:
    """Return everything below a folder but noclobber's own records, to compare outcomes on the disk."""
    found = {}
    for path in sorted(folder.rglob("*")):
        relative = str(path.relative_to(folder))
        if ".noclobber" in relative.split("/"):
            continue
        if path.is_symlink():
            found[relative] = "link to " + os.readlink(path).replace(str(folder), "<folder>")
        elif path.is_dir():
            found[relative] = "folder"
        elif path.is_file():
            found[relative] = f"{path.stat().st_mode & 0o777:o} {path.read_bytes()!r}"
        else:
            found[relative] = "special"
    return found
