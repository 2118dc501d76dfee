"""
File watchers in common use, each as a command that prints a line for every event.

A line is `there PATH`, `gone PATH`, or `changed PATH` where the watcher does not tell which. What cannot be had on this
machine is a `MissingHostError` that says what to do.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from tests.e2e.programs import MissingHostError, find_node, package_from_npm

HERE = Path(__file__).parent
NODE_AT_LEAST = 20


def _from_npm(watcher: str, package: str, version: str) -> Callable[[Path], list[str]]:
    def command(root: Path) -> list[str]:
        node = find_node(NODE_AT_LEAST)
        folder = package_from_npm(f"watcher-{watcher}", package, version, node)
        return [str(node.folder / "node"), str(HERE / "watchers.mjs"), watcher, str(folder), str(root)]

    return command


def _fs_watch(root: Path) -> list[str]:
    node = find_node(NODE_AT_LEAST)
    return [str(node.folder / "node"), str(HERE / "watchers.mjs"), "fs.watch", str(HERE), str(root)]


def _of_python(module: str) -> Callable[[Path], list[str]]:
    def command(root: Path) -> list[str]:
        if importlib.util.find_spec(module) is None:
            raise MissingHostError(f"there is no {module} here; `make e2e` installs requirements-e2e.txt")
        return [sys.executable, "-m", "tests.e2e.watchers", module, str(root)]

    return command


def _of_system(program: str, *options: str) -> Callable[[Path], list[str]]:
    def command(root: Path) -> list[str]:
        found = shutil.which(program)
        if found is None:
            raise MissingHostError(f"there is no {program} on this machine; install your system's package")
        return [found, *options, str(root)]

    return command


WATCHERS: dict[str, Callable[[Path], list[str]]] = {
    "parcel": _from_npm("parcel", "@parcel/watcher", "2.6.0"),
    "chokidar": _from_npm("chokidar", "chokidar", "5.0.0"),
    "watchpack": _from_npm("watchpack", "watchpack", "2.6.4"),
    "fs.watch": _fs_watch,
    "watchdog": _of_python("watchdog"),
    "watchfiles": _of_python("watchfiles"),
    "inotifywait": _of_system(
        "inotifywait",
        *("-m", "-r", "-q", "-e", "modify,attrib,move,create,delete", "--format", "changed %w%f"),
    ),
    "fswatch": _of_system("fswatch", "-r", "-l", "0.1", "--format", "changed %p"),
}


def _watchdog(root: str) -> None:
    from watchdog.events import FileSystemEvent, FileSystemEventHandler
    from watchdog.observers import Observer

    class Teller(FileSystemEventHandler):  # type: ignore[misc,unused-ignore]
        def on_any_event(self, event: FileSystemEvent) -> None:
            if event.event_type in ("opened", "closed_no_write"):
                return
            _tell(
                "gone" if event.event_type in ("deleted", "moved") else "there", os.fsdecode(event.src_path)
            )
            if event.event_type == "moved":
                _tell("there", os.fsdecode(event.dest_path))

    observer = Observer()
    observer.schedule(Teller(), root, recursive=True)
    observer.start()
    observer.join()


def _watchfiles(root: str) -> None:
    from watchfiles import Change, watch

    for batch in watch(root, watch_filter=None):
        for path in {path for _, path in batch}:
            kinds = {change for change, changed in batch if changed == path}
            # A batch has no order.
            both = Change.deleted in kinds and len(kinds) > 1
            _tell("changed" if both else "gone" if Change.deleted in kinds else "there", path)


def _tell(kind: str, path: str) -> None:
    print(kind, path, flush=True)


if __name__ == "__main__":
    {"watchdog": _watchdog, "watchfiles": _watchfiles}[sys.argv[1]](sys.argv[2])
