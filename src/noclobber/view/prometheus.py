"""
Metrics in Prometheus' text format (version 0.0.4): what the ledger counts, and what is the case now.

The counters are over the whole ledger, so they go on where they were when the server is started again. While
the older part is still being counted they are too low; `noclobber_ledger_counted_ratio` is below 1 then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[dict[str, str], float]


def spelled(gauges: dict[str, Any]) -> str:
    """Return the page that Prometheus reads."""
    totals = gauges.get("totals") or {"groups": {}, "kinds": {}, "refusals": {}, "counted_share": 0.0}
    groups, kinds = totals["groups"], totals["kinds"]
    locks, waiting = gauges.get("locks") or [], gauges.get("attention") or []
    by_kind = [({"kind": kind}, float(count)) for kind, count in kinds.items()]
    by_error = [({"error_type": name}, float(count)) for name, count in totals["refusals"].items()]
    waits = [({"kind": name}, _number(waiting, name)) for name in ("kept", "run", "finding")]
    chain = gauges.get("chain") or {}
    parts = [
        _metric("noclobber_events_total", "counter", "Events on record, by kind.", by_kind),
        _metric(
            "noclobber_writes_total",
            "counter",
            "Writes that landed, merged ones included.",
            [({}, float(groups.get("write", 0) + groups.get("merge", 0)))],
        ),
        _metric("noclobber_merges_total", "counter", "Stale writes that were merged.", _one(groups, "merge")),
        _metric(
            "noclobber_conflicts_total",
            "counter",
            "Stale writes that were refused.",
            _one(groups, "conflict"),
        ),
        _metric(
            "noclobber_races_total",
            "counter",
            "Writes of somebody else at the same moment.",
            _one(groups, "race"),
        ),
        _metric("noclobber_refusals_total", "counter", "Refused writes, by the error's code.", by_error),
        _metric(
            "noclobber_lock_waits_total",
            "counter",
            "Locks that somebody else had, since this server was started.",
            _one(gauges, "lock_waits"),
        ),
        _metric(
            "noclobber_bad_lines_total", "counter", "Lines that are no events.", _one(totals, "bad_lines")
        ),
        _metric(
            "noclobber_ledger_counted_ratio",
            "gauge",
            "How much of the ledger is counted.",
            _one(totals, "counted_share"),
        ),
        _metric(
            "noclobber_chain_ok",
            "gauge",
            "1 while the followed chain is whole.",
            [({}, float(bool(chain.get("ok"))))],
        ),
        _metric(
            "noclobber_locks",
            "gauge",
            "Locks by state.",
            [
                ({"state": state}, float(sum(lock["state"] == state for lock in locks)))
                for state in sorted({lock["state"] for lock in locks})
            ],
        ),
        _metric(
            "noclobber_waiting_for_a_person", "gauge", "Kept versions, refused commands, findings.", waits
        ),
        _metric(
            "noclobber_agents_at_work",
            "gauge",
            "Agents that did something lately.",
            [({}, float(len(gauges.get("at_work") or [])))],
        ),
    ]
    return "".join(parts)


def _number(waiting: Iterable[dict[str, Any]], kind: str) -> float:
    return float(sum(item["kind"] == kind for item in waiting))


def _one(table: dict[str, Any], name: str) -> list[Sample]:
    return [({}, float(table.get(name, 0)))]


def _metric(name: str, kind: str, told: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP {name} {told}\n# TYPE {name} {kind}\n"]
    for labels, value in samples:
        marks = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        lines.append(
            f"{name}{f'{{{marks}}}' if marks else ''} {value:g}\n"
            if value < 1e6
            else f"{name}{f'{{{marks}}}' if marks else ''} {value:.0f}\n"
        )
    return "".join(lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
