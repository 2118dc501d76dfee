"""
Tell an observer what happened, while it happens: for metrics, traces, a live view.

An observer is told every event that has just been put on record, in the form that the ledger has it: landed
and refused writes, what recovery did, lock events. It is told by the thread that recorded the event, after
the ledger's mutex is released, so events of several threads may come in another order than the record's;
`seq` has that order. Hooks are processes of their own and have no observer; their events are in the ledger.

An observer that has a method `began(call)` is told of every call of a turn when it begins, so that it can say
how long the call took: the call's `call_id` is in the `identity` of its events. Calls that leave no event
(reads, writes of what was there already) begin as well, and nothing follows.

An observer cannot change what happens. By the time it is told the event is on record, and an exception in
it goes to Python's logging (`noclobber`), never to the writer. It can only take time: the write returns
after it does. So hand slow work to a thread.

Not told: the notices that the ledger writes about itself (`LEDGER_TORN_TAIL`, `LEDGER_CUT`), and events
that could not be recorded; those are a `LedgerError` for the writer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from noclobber.disk import forks
from noclobber.ledger.ledger import LedgerEntry

if TYPE_CHECKING:
    import logging

    from noclobber.core.values import ToolCall

_REFUSED = frozenset(("DENIED", "FAILED", "RACED", "REFUSED", "KEPT_ASIDE"))
_INFO, _WARNING = 20, 30  # As in `logging`.


class Observer(Protocol):
    """Is told what happened. Threads may call it at the same time."""

    def observe(self, event: Mapping[str, Any]) -> None:
        """Take note of an event that is on record; `ledger-event.schema.json` has its form."""


class LoggingObserver:
    """Passes events to Python's logging: refusals and races as warnings, everything else as information."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or _logger("noclobber.events")

    def observe(self, event: Mapping[str, Any]) -> None:
        """Log one line; a handler finds the whole event in the record's `noclobber_event`."""
        payload, result, identity = (event.get(name) or {} for name in ("payload", "result", "identity"))
        status = result.get("status")
        self._logger.log(
            _WARNING if status in _REFUSED else _INFO,
            "%s %s %s by %s",
            event.get("action_type"),
            result.get("error_type") or status,
            payload.get("target_file") or payload.get("folder") or payload.get("kept") or "-",
            identity.get("agent_id") or "-",
            extra={"noclobber_event": event},
        )


def _logger(name: str) -> logging.Logger:
    # Not loaded with this module: few programs need it here. And a fork that waits while `logging` is loaded
    # runs the second half of its at-fork hooks without the first, which Python reports on stderr.
    with forks.loading():
        import logging

    return logging.getLogger(name)


def tell(observer: Observer, event: Mapping[str, Any], entry: LedgerEntry) -> None:
    """Tell an observer of an event that was recorded as `entry`. Never raises an `Exception`."""
    told = {"seq": entry.seq, "time": entry.time, **event, "prev_hash": entry.prev_hash, "hash": entry.hash}
    try:
        observer.observe(told)
    except Exception:
        _logger("noclobber").exception(
            "%s failed to observe event %d (%s); the event is on record and nothing else is affected",
            type(observer).__qualname__,
            entry.seq,
            event.get("action_type"),
        )


def tells_beginnings(observer: Observer) -> Callable[[ToolCall], None] | None:
    """Return a function that tells an observer that a call begins; None if it has no method `began`."""
    began = getattr(observer, "began", None)
    if not callable(began):
        return None

    def tell_began(call: ToolCall) -> None:
        try:
            began(call)
        except Exception:
            _logger("noclobber").exception(
                "%s failed to observe that %s begins; nothing else is affected",
                type(observer).__qualname__,
                call.tool,
            )

    return tell_began
