"""
Ask the server without its driver's import time: libpq itself, through ctypes.

A hook is a process for each tool call. Importing psycopg takes longer than everything else that a hook does;
loading the library below it takes a few milliseconds. Here is what a hook needs of `ServerConnection`: one
question, asked again if its answer got lost, with the same errors. No notices, no threads, no forks.

The library comes from where psycopg's own is (`psycopg_binary.libs`), else from the system (`libpq.so.5`).
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import time
from functools import cache
from typing import Any

from noclobber.errors import CoordinatorUnavailableError
from noclobber.postgres.address import connection_options, shown
from noclobber.postgres.asking import (
    ALIVE,
    ANSWER_MS,
    CONNECT_S,
    ENCODING,
    PATIENCE_S,
    VERSION_QUESTION,
    answer_until_s,
    explained,
    may_ask_again,
    naps,
    refuse_other_version,
    unavailable,
)
from noclobber.postgres.text_form import LostError, numbered, spelled, understood

_OK, _TUPLES, _COMMAND = 0, 2, 1
_SQLSTATE, _PRIMARY = ord("C"), ord("M")


class _Option(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_char_p) for name in ("keyword", "envvar", "compiled", "val", "label", "dispchar")),
        ("dispsize", ctypes.c_int),
    )


@cache
def library() -> ctypes.CDLL | None:
    """Return libpq; None if this machine has none that can be found without looking for long."""
    found = []
    for folder in _folders():
        try:
            found += [f"{folder}/{name}" for name in os.listdir(folder) if name.startswith("libpq-")]
        except OSError:
            continue
    for name in (*found, "libpq.so.5", "libpq.5.dylib"):
        try:
            return _declared(ctypes.CDLL(name))
        except OSError:
            continue
    return None


def _folders() -> tuple[str, ...]:
    """Where psycopg has put its libraries: beside this package, or in the interpreter's environment."""
    beside = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    environment = os.path.dirname(os.path.dirname(sys.executable))  # A hook runs without `site`.
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = (beside, f"{environment}/lib/{version}/site-packages")
    return tuple(f"{folder}/psycopg_binary.libs" for folder in packages)


def _declared(libpq: ctypes.CDLL) -> ctypes.CDLL:
    texts = ctypes.POINTER(ctypes.c_char_p)
    for name, result, arguments in (
        ("PQconninfoParse", ctypes.POINTER(_Option), (ctypes.c_char_p, texts)),
        ("PQconnectdbParams", ctypes.c_void_p, (texts, texts, ctypes.c_int)),
        ("PQlibVersion", ctypes.c_int, ()),
        ("PQstatus", ctypes.c_int, (ctypes.c_void_p,)),
        ("PQerrorMessage", ctypes.c_char_p, (ctypes.c_void_p,)),
        ("PQfinish", None, (ctypes.c_void_p,)),
        (
            "PQsendQueryParams",
            ctypes.c_int,
            (
                *(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p, texts),
                *(ctypes.c_void_p,) * 2,
                ctypes.c_int,
            ),
        ),
        ("PQisBusy", ctypes.c_int, (ctypes.c_void_p,)),
        ("PQconsumeInput", ctypes.c_int, (ctypes.c_void_p,)),
        ("PQsocket", ctypes.c_int, (ctypes.c_void_p,)),
        ("PQgetResult", ctypes.c_void_p, (ctypes.c_void_p,)),
        ("PQresultStatus", ctypes.c_int, (ctypes.c_void_p,)),
        ("PQresultErrorField", ctypes.c_char_p, (ctypes.c_void_p, ctypes.c_int)),
        ("PQclear", None, (ctypes.c_void_p,)),
        ("PQntuples", ctypes.c_int, (ctypes.c_void_p,)),
        ("PQnfields", ctypes.c_int, (ctypes.c_void_p,)),
        ("PQftype", ctypes.c_uint, (ctypes.c_void_p, ctypes.c_int)),
        ("PQgetisnull", ctypes.c_int, (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)),
        ("PQgetlength", ctypes.c_int, (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)),
        ("PQgetvalue", ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)),
    ):
        function = getattr(libpq, name)
        function.restype, function.argtypes = result, arguments
    return libpq


def parsed(address: str) -> dict[str, Any] | None:
    """Return the parts of an address; None without the library. `ValueError` with its words if it is none."""
    libpq = library()
    if libpq is None:
        return None
    trouble = ctypes.c_char_p()
    options = libpq.PQconninfoParse(address.encode(), ctypes.byref(trouble))
    if not options:
        raise ValueError((trouble.value or b"").decode("utf-8", "replace"))
    found: dict[str, Any] = {}
    number = 0
    while options[number].keyword:
        if options[number].val is not None:
            found[options[number].keyword.decode()] = options[number].val.decode()
        number += 1
    return found  # libpq's copy is not freed: a few hundred bytes, in a process that ends.


class LightConnection:
    """A way to the server for a process that asks once or twice, and ends."""

    def __init__(self, address: str) -> None:
        libpq = library()
        assert libpq is not None
        self._libpq, self._link, self._is_right_version = libpq, 0, False
        self._options = connection_options(address)
        self.answered_s = float("-inf")

    @property
    def server(self) -> str:
        """Which server this is, for messages."""
        return shown(self._options)

    def ask(self, statement: str, arguments: tuple[Any, ...], patience_s: float | None = None) -> list[Any]:
        """Run one statement in a transaction of its own and return its rows; see `ServerConnection.ask`."""
        deadline_s = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
        for nap_s in naps():
            try:
                if not self._is_right_version:
                    refuse_other_version(self.server, self._ask(VERSION_QUESTION, (), deadline_s))
                    self._is_right_version = True
                rows = self._ask(statement, arguments, deadline_s)
                self.answered_s = time.monotonic()
                return rows
            except LostError as error:
                self.close()
                if not may_ask_again(error.state, str(error)):
                    raise explained(self.server, error.state, str(error)) from error
                if time.monotonic() + nap_s >= deadline_s:
                    raise unavailable(self.server, str(error)) from error
            time.sleep(nap_s)
        raise AssertionError  # Naps do not end.

    def value(self, statement: str, arguments: tuple[Any, ...], patience_s: float | None = None) -> Any:
        """Run one statement and return the first column of its first row; None if there is no row."""
        rows = self.ask(statement, arguments, patience_s)
        return rows[0][0] if rows else None

    def tell(self, statement: str, arguments: tuple[Any, ...]) -> None:
        """Run one statement. Here it is waited for: this process may end before its next question."""
        self.ask(statement, arguments)

    def wait(self, key: str, at_most_s: float) -> None:
        """Notices are not heard here; the time that was given is the poll."""
        time.sleep(at_most_s)

    def close(self) -> None:
        """Say goodbye to the server."""
        link, self._link = self._link, 0
        if link:
            self._libpq.PQfinish(link)

    # -- parts ---------------------------------------------------------------------------------------------

    def _ask(self, statement: str, arguments: tuple[Any, ...], until_s: float) -> list[tuple[Any, ...]]:
        libpq, link = self._libpq, self._open()
        given = (ctypes.c_char_p * max(1, len(arguments)))(*[spelled(each) for each in arguments])
        question = numbered(statement)
        sent = libpq.PQsendQueryParams(link, question, len(arguments), None, given, None, None, 0)
        result = self._answer(link, until_s) if sent else 0
        try:
            if libpq.PQresultStatus(result) not in (_TUPLES, _COMMAND):
                state = libpq.PQresultErrorField(result, _SQLSTATE) if result else None
                message = libpq.PQresultErrorField(result, _PRIMARY) if result else None
                said = message or libpq.PQerrorMessage(link) or b""
                raise LostError(state.decode() if state else None, said.decode("utf-8", "replace"))
            kinds = [libpq.PQftype(result, column) for column in range(libpq.PQnfields(result))]
            return [
                tuple(self._field(result, row, column, kind) for column, kind in enumerate(kinds))
                for row in range(libpq.PQntuples(result))
            ]
        finally:
            libpq.PQclear(result)

    def _answer(self, link: int, until_s: float) -> int:
        """Return the answer; none if the connection was lost. Whoever took the question may be stuck."""
        libpq, until_s, answer = self._libpq, answer_until_s(until_s), 0
        # To the end, which is sent after the commit: rows alone may come before it.
        while True:
            while libpq.PQisBusy(link):
                left_s = max(0.0, until_s - time.monotonic())
                if not select.select([libpq.PQsocket(link)], [], [], left_s)[0]:
                    raise LostError(None, "the server took the question and does not answer")
                if not libpq.PQconsumeInput(link):
                    libpq.PQclear(answer)
                    return 0
            found: int = libpq.PQgetResult(link) or 0
            if not found:
                return answer
            if answer:
                libpq.PQclear(found)
            answer = answer or found

    def _field(self, result: int, row: int, column: int, kind: int) -> Any:
        libpq = self._libpq
        if libpq.PQgetisnull(result, row, column):
            return None
        size = libpq.PQgetlength(result, row, column)
        return understood(kind, ctypes.string_at(libpq.PQgetvalue(result, row, column), size))

    def _open(self) -> int:
        if not self._link:
            options = {
                **ALIVE,
                "connect_timeout": str(CONNECT_S),
                "application_name": "noclobber",
                "tcp_user_timeout": str(ANSWER_MS),
                "target_session_attrs": "read-write",  # A standby cannot decide anything.
                **self._options,
                **ENCODING,
            }
            kinds = ctypes.c_char_p * (len(options) + 1)
            keys = kinds(*[key.encode() for key in options], None)
            values = kinds(*[str(value).encode() for value in options.values()], None)
            self._link = self._libpq.PQconnectdbParams(keys, values, 0)
            if self._libpq.PQstatus(self._link) != _OK:
                said = (self._libpq.PQerrorMessage(self._link) or b"").decode("utf-8", "replace")
                raise LostError(None, said)
        return self._link


__all__ = ["CoordinatorUnavailableError", "LightConnection", "library", "parsed"]
