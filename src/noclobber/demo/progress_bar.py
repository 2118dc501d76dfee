"""
A progress bar: drawn by rich if it is installed, otherwise as text; whole lines if the output is no terminal.

An output that is not a terminal gets text only: no escape codes, no carriage returns.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, TextIO

BAR_COLUMNS = 28
LINE_COLUMNS = 100


class Bar:
    """Call it with the share that is done and a description. Use it as a context manager."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._is_terminal = self._stream.isatty()
        self._last_told = ""
        self._rich: Any = None
        self._task: Any = None

    def __enter__(self) -> Bar:
        if self._is_terminal:
            try:
                from rich.console import Console
                from rich.progress import BarColumn, Progress, TextColumn
            except ImportError:
                return self
            columns = (BarColumn(BAR_COLUMNS), TextColumn("{task.percentage:>3.0f} %  {task.description}"))
            self._rich = Progress(*columns, console=Console(file=self._stream), transient=True)
            self._rich.start()
            self._task = self._rich.add_task("", total=1.0)
        return self

    def __call__(self, share: float, told: str) -> None:
        if self._rich is not None:
            self._rich.update(self._task, completed=share, description=told)
        elif self._is_terminal:
            full = round(share * BAR_COLUMNS)
            line = f"[{'#' * full}{'.' * (BAR_COLUMNS - full)}] {share:4.0%}  {told}"
            self._stream.write(f"\r{line[:LINE_COLUMNS]:<{LINE_COLUMNS}}")
            self._stream.flush()
        elif told != self._last_told:
            self._stream.write(f"{share:4.0%}  {told}\n")
            self._stream.flush()
        self._last_told = told

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rich is not None:
            self._rich.stop()
        elif self._is_terminal:
            self._stream.write(f"\r{'':<{LINE_COLUMNS}}\r")
            self._stream.flush()
