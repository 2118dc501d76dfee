"""Something that happens in the middle of a command: the command waits for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path


class Meanwhile:
    """Acts when a command gets to `pause`, a piece of shell text, and lets it go on then."""

    def __init__(self, folder: Path, act: Callable[[], object]) -> None:
        folder.mkdir(exist_ok=True)
        self._ready, self._go = folder / "ready", folder / "go"
        for pipe in (self._ready, self._go):
            os.mkfifo(pipe)
        self.pause = f"echo > {self._ready}; read _ < {self._go}"
        self._thread = threading.Thread(target=self._run, args=(act,), daemon=True)
        self._thread.start()

    def _run(self, act: Callable[[], object]) -> None:
        self._ready.read_text()
        try:
            act()
        finally:
            self._go.write_text("\n")
