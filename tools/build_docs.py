"""
Build the documentation site: `make docs`.

The pages are those in docs/, the project's own (SECURITY.md and others), and three that are made from the
code: the command line from its parsers, the JSON documents from their schemas, the Python names from their
docstrings. They are put together in build/docs, and mkdocs makes build/site of it. A dead link, a
page that is in no menu and a name that does not exist are failures.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from contextlib import redirect_stdout
from pathlib import Path

PROJECT = Path(__file__).parents[1]
PAGES = PROJECT / "build" / "docs"
OWN_PAGES = ("SECURITY.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md")
SOURCE = "https://github.com/noclobber/noclobber/blob/main/"


def main() -> int:
    """Put the pages together and build the site."""
    sys.path.insert(0, str(PROJECT / "src"))
    gather()
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", "mkdocs.yml"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
    code = subprocess.run(words, cwd=PROJECT, check=False, env=environment).returncode
    if code == 0:
        print(f"The site is in {PROJECT / 'build' / 'site'}: open index.html there.")
    return code


def gather() -> None:
    """Write every page into build/docs."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(PROJECT / "docs", PAGES)
    for page in PAGES.rglob("*.md"):
        page.write_text(relinked(page.read_text(), page.relative_to(PAGES)))
    (PAGES / "project").mkdir()
    for name in OWN_PAGES:
        (PAGES / "project" / name).write_text(relinked_root((PROJECT / name).read_text()))
    (PAGES / "reference").mkdir(exist_ok=True)
    (PAGES / "reference" / "parser.md").write_text(parser_page())
    (PAGES / "reference" / "schemas.md").write_text(schemas_page())
    (PAGES / "reference" / "python.md").write_text(python_page())


LINK = re.compile(r"\]\(([^)#\s]+)((?:#[^)]*)?)\)")


def relinked(text: str, page: Path) -> str:
    """Return a page of docs/ whose links to files outside docs/ lead to their place in the site."""

    def place(match: re.Match[str]) -> str:
        target, anchor = match.groups()
        if "://" in target:
            return match.group()
        path = os.path.normpath(f"docs/{page.parent}/{target}")
        if path.startswith("docs/") and not (PROJECT / path).is_dir():
            return match.group()
        return f"]({_outside(path, len(page.parts) - 1)}{anchor})"

    return LINK.sub(place, text)


def relinked_root(text: str) -> str:
    """Return one of the project's own pages, as it is linked from build/docs/project."""

    def place(match: re.Match[str]) -> str:
        target, anchor = match.groups()
        if "://" in target:
            return match.group()
        path = os.path.normpath(target)
        if path.startswith("docs/") and not (PROJECT / path).is_dir():
            return f"](../{path.removeprefix('docs/')}{anchor})"
        return f"]({_outside(path, 1)}{anchor})"

    return LINK.sub(place, text)


def _outside(path: str, depth: int) -> str:
    if path in OWN_PAGES:
        return f"{'../' * depth}project/{path}"
    if path == "README.md":
        return f"{'../' * depth}index.md"
    if path == "docs/frameworks":
        return f"{'../' * depth}frameworks/README.md"
    if path in ("docs/decisions", "docs/lock"):
        first = {"docs/decisions": "decisions/the-tree.md", "docs/lock": "lock/agents.md"}[path]
        return f"{'../' * depth}{first}"
    return f"{SOURCE}{path}"


def parser_page() -> str:
    """Return the help of every command, as the parsers print it."""
    from noclobber.cli import COMMANDS, help_page, parser_of

    os.environ |= {"COLUMNS": "100", "NO_COLOR": "1"}
    parts = ["# Every command's help\n", "Made from the parsers. [Commands](../cli.md) explains them.\n"]
    parts.append(f"## noclobber\n\n```text\n{help_page()}```\n")
    for name in COMMANDS:
        for path in [(name,), *((name, below) for below in subcommands(parser_of(name)))]:
            out = io.StringIO()
            with redirect_stdout(out):
                try:
                    parser_of(name).parse_args([*path[1:], "--help"])
                except SystemExit:
                    pass
            level = "##" if len(path) == 1 else "###"
            parts.append(f"{level} noclobber {' '.join(path)} {{: #help-{'-'.join(path)} }}\n")
            parts.append(f"```text\n{out.getvalue()}```\n")
    return "\n".join(parts).replace(" {: #", " { #")


def subcommands(parser: ArgumentParser) -> list[str]:
    """Return the names of a command's subcommands."""
    return [name for action in parser._actions if isinstance(action.choices, dict) for name in action.choices]


def schemas_page() -> str:
    """Return every schema: of errors, of the ledger, of the documents that commands print."""
    from noclobber.core.wire import SCHEMAS, schema

    parts = [
        "# Schemas\n",
        "JSON Schema 2020-12, as they are in the package.\n",
        "## Errors, ledger, locks\n",
    ]
    parts += [f"### {name}\n\n```json\n{json.dumps(schema(name), indent=2)}\n```\n" for name in SCHEMAS]
    parts.append("## Documents of commands\n\nWhat `--json` prints: `noclobber/cli/schemas/`.\n")
    for path in sorted((PROJECT / "src/noclobber/cli/schemas").glob("*.schema.json")):
        parts.append(f"### {path.name.removesuffix('.schema.json')}\n\n```json\n{path.read_text()}```\n")
    return "\n".join(parts)


def python_page() -> str:
    """Return directives for every public name; mkdocstrings reads the docstrings."""
    import noclobber

    parts = ["# Python\n", "Made from the docstrings. [The Python API](../api.md) has them in order.\n"]
    for name in sorted(name for name in noclobber.__all__ if name[0].isupper() or name.islower()):
        value = getattr(noclobber, name)
        module = getattr(value, "__module__", None)
        if isinstance(module, str) and module.startswith("noclobber") and hasattr(value, "__qualname__"):
            parts.append(f"::: {module}.{value.__qualname__}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
