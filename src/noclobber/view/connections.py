"""
Room for so many connections. Whoever has shown no token makes room for the next one.

Any program on the machine can open connections to the loopback and say nothing. If they kept their places,
two hundred of them would shut the owner out for as long as they like. So when all places are taken, the
oldest connection that has shown no token is ended. The owner's own request shows its token within
milliseconds, before so many others can come after it.
"""

from __future__ import annotations

import socket
import threading


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
