"""
Who may ask: a token, and the names under which this server is asked for.

The page itself (HTML, CSS, scripts) holds nothing of the project and is given to anybody on this machine.
Every answer about the project, and every action, needs the token in a header of its own. It is no cookie:
browsers send those to every port of a machine, so to servers of other users as well.

The link that is printed has the token after `#`, which browsers do not send and do not log. The browser
that we start ourselves gets a code that works once, because others can read command lines.

`Host` must be this server's own name, so that a site whose name leads here (DNS rebinding) is refused. A
request that a page of another origin makes is refused by its `Origin`, and before that by the header itself:
browsers ask first whether they may send it, and are told nothing.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from email.message import Message

    from noclobber.core.clock import Clock

TOKEN_HEADER = "X-Noclobber-Token"  # noqa: S105 - a header's name
CODE_LIFE_S = 120.0


class Access:
    """The token of one server, the codes that were given out for it, and its names."""

    def __init__(self, port: int, clock: Clock, token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(32)
        self.hosts = frozenset((f"127.0.0.1:{port}", f"localhost:{port}"))
        self._clock = clock
        self._codes: dict[str, float] = {}
        self._lock = threading.Lock()

    def code(self) -> str:
        """Return a code that can be exchanged for the token once, soon."""
        made = secrets.token_urlsafe(16)
        with self._lock:
            self._codes[made] = self._clock.monotonic_s() + CODE_LIFE_S
        return made

    def exchange(self, code: str) -> str | None:
        """Return the token for a code that was not used yet; None for any other."""
        with self._lock:
            ends_s = self._codes.pop(code, None)
        return self.token if ends_s is not None and self._clock.monotonic_s() < ends_s else None

    def is_here(self, headers: Message) -> bool:
        """True if the server was asked by one of its names, and not by a page of another origin."""
        if headers.get("Host", "").lower() not in self.hosts:
            return False
        origin = headers.get("Origin")
        if origin is not None and origin.lower() not in {f"http://{host}" for host in self.hosts}:
            return False
        return headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")

    def is_known(self, headers: Message) -> bool:
        """True if a request has the token: in our own header, or as a bearer's, for programs."""
        given = headers.get(TOKEN_HEADER) or headers.get("Authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())
