"""
The asyncio twins behind the blocking names, so that a test of the one is a test of the other.

`Driven(aio.Workspace(root), loop)` looks like a `Workspace`: what is a coroutine there runs in an event loop in
another thread, and is waited for. An executor becomes a coroutine function. What a twin does not have (what
tests look at inside) comes from the object underneath.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from noclobber import Workspace, aio

TWINS = (aio.Workspace, aio.Turn, aio.HookEngine, aio.ToolList)


class Driven:
    """One twin, driven by an event loop."""

    def __init__(self, twin: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.__dict__.update(_twin=twin, _loop=loop)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._twin, name, None)
        if found is None:
            return getattr(self._twin.sync, name)
        return self._call(found) if inspect.isroutine(found) else self._dressed(found)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._twin.sync, name, value)

    def __enter__(self) -> Driven:
        self._wait(self._twin.__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        self._wait(self._twin.__aexit__(*error))

    def _call(self, method: Any) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            if isinstance(self._twin, aio.HookEngine) and len(args) == 2 and callable(args[1]):
                args = (args[0], _as_coroutine_function(args[1]))
            result = method(*args, **kwargs)
            return self._dressed(self._wait(result) if inspect.iscoroutine(result) else result)

        return called

    def _dressed(self, found: Any) -> Any:
        return Driven(found, self._loop) if isinstance(found, TWINS) else found

    def _wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)


def _as_coroutine_function(executor: Any) -> Any:
    async def run(call: Any) -> Any:
        return executor(call)

    return run


@contextlib.contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(params=["sync", "aio"], autouse=True)
def each_twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """finding C9: `Workspace` in the test's module is the blocking one, then the twin, driven by a loop."""
    if request.param == "sync":
        yield
        return
    with running_loop() as loop:
        assert request.module.Workspace is Workspace

        def driven(*args: Any, **kwargs: Any) -> Driven:
            return Driven(aio.Workspace(*args, **kwargs), loop)

        monkeypatch.setattr(request.module, "Workspace", driven)
        yield
