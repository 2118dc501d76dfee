"""
Who may ask: a token, and the names under which this server is asked for.

The page itself (HTML, CSS, scripts) holds nothing of the project and is given to anybody on this machine.
Every answer about the project, and every action, needs the token in a header of its own. It is no cookie:
browsers send those to every port of a machine, so to servers of other users as well. It is made anew at each
start: who has the port next may hear it from a page that is still open, and can do nothing with it.

The token is in no link, because browsers remember links. A link has a code that works once, after `#`, which
browsers do not send. The browser that we start ourselves gets the path of a file that leads to such a link,
because others can read command lines. Nobody else can read that file, and it goes when it was used.

`Host` must be this server's own name, so that a site whose name leads here (DNS rebinding) is refused. A
request that a page of another origin makes is refused by its `Origin`, and before that by the header itself:
browsers ask first whether they may send it, and are told nothing.

Any program on the machine can open connections to the loopback and say nothing. If they kept their places,
two hundred of them would shut the owner out for as long as they like. So when all places are taken, the
oldest connection that has shown no token is ended (`Connections`). The owner's own request shows its token
within milliseconds, before so many others can come after it.
"""

from __future__ import annotations

import hmac
import os
import secrets
import shutil
import socket
import tempfile
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from email.message import Message

TOKEN_HEADER = "X-Noclobber-Token"  # noqa: S105 - a header's name
TOKEN_BEGINS = "noclobber-view-"  # noqa: S105 - so that a file that holds one can be told from others
PAGE_THAT_LEADS_ON = """\
<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={link}">
<title>noclobber</title>
<a href="{link}">noclobber view</a>
"""


class Access:
    """The token of one server, the links that were given out for it, and its names."""

    def __init__(self, port: int) -> None:
        self.token = f"{TOKEN_BEGINS}{secrets.token_urlsafe(32)}"
        self.hosts = frozenset((f"127.0.0.1:{port}", f"localhost:{port}"))
        self._port, self._folder = port, ""
        self._when_used: dict[str, Callable[[], object]] = {}
        self._lock = threading.Lock()

    def link(self, when_used: Callable[[], object] = lambda: None) -> str:
        """Return a link that lets one browser in; `when_used` is called when it has."""
        code = secrets.token_urlsafe(16)
        with self._lock:
            self._when_used[code] = when_used
        return f"http://127.0.0.1:{self._port}/#code={code}"

    def exchange(self, code: str) -> str | None:
        """Return the token for a code that was not used yet; None for any other."""
        with self._lock:
            when_used = self._when_used.pop(code, None)
        if when_used is None:
            return None
        when_used()
        return self.token

    def file_for_browser(self) -> str:
        """Make a file that leads a browser to a link, once, for a command line that others may read."""
        self._folder = tempfile.mkdtemp(prefix="noclobber-view-")  # With mode 700.
        path = os.path.join(self._folder, "open.html")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(PAGE_THAT_LEADS_ON.format(link=self.link(self.remove_file)))
        return path

    def remove_file(self) -> None:
        """Remove the file for the browser, if there is one."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def is_here(self, headers: Message, *, is_page: bool = False) -> bool:
        """
        True if the server was asked by one of its names, and not by a page of another origin.

        The page itself may be gone to from anywhere: to a browser, our own file is another site. It holds
        nothing, and nobody can frame it.
        """
        if headers.get("Host", "").lower() not in self.hosts:
            return False
        origin = headers.get("Origin")
        if origin is not None and origin.lower() not in {f"http://{host}" for host in self.hosts}:
            return False
        is_gone_to = is_page and headers.get("Sec-Fetch-Dest") == "document"
        return is_gone_to or headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")

    def is_known(self, headers: Message) -> bool:
        """True if a request has the token: in our own header, or as a bearer's, for programs."""
        given = headers.get(TOKEN_HEADER) or headers.get("Authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())


class Connections:
    """The connections that are open: those that have shown the token, and the others, the oldest first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._strangers: dict[socket.socket, None] = {}
        self._trusted: set[socket.socket] = set()

    def admit(self, connection: socket.socket) -> bool:
        """Take a place; False if all are taken by those who have shown the token."""
        with self._lock:
            if len(self._trusted) >= self._most:
                return False
            if len(self._trusted) + len(self._strangers) >= self._most:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                try:
                    oldest.shutdown(socket.SHUT_RDWR)  # Its thread reads an end, and leaves.
                except OSError:
                    pass
            self._strangers[connection] = None
            return True

    def trust(self, connection: socket.socket) -> None:
        """This one has shown the token."""
        with self._lock:
            if connection in self._strangers:  # Not if it was ended at this very moment.
                del self._strangers[connection]
                self._trusted.add(connection)

    def leave(self, connection: socket.socket) -> None:
        """This one has ended."""
        with self._lock:
            self._strangers.pop(connection, None)
            self._trusted.discard(connection)
