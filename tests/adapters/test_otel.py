"""Metrics and traces for OpenTelemetry."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from noclobber import DeliverableLock, LockContention, NoclobberError, StaleFileError, Workspace
from noclobber.adapters.otel import MOST_CALLS, OtelObserver
from noclobber.core.values import ToolCall
from tests.ledger.observer_suite import ObserverSuite


class Telemetry:
    """What a program's own OpenTelemetry would receive."""

    def __init__(self) -> None:
        self._reader, self._exporter = InMemoryMetricReader(), InMemorySpanExporter()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.observer = OtelObserver(meter_provider=self.meters, tracer_provider=self.tracers)

    def spans(self) -> list[Any]:
        return list(self._exporter.get_finished_spans())

    def counts(self) -> dict[str, int]:
        data = self._reader.get_metrics_data()
        found: dict[str, int] = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    points: list[Any] = list(metric.data.data_points)
                    found[metric.name] = sum(point.value for point in points)
        return found


@pytest.fixture
def telemetry(monkeypatch: pytest.MonkeyPatch) -> Telemetry:
    # A machine may switch OpenTelemetry off for everybody, as continuous integration likes to do.
    for name in [each for each in os.environ if each.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    return Telemetry()


class TestOtelObserver(ObserverSuite):
    """N-observer, N-metrics: it does what every observer does."""

    @pytest.fixture
    def observer(self, telemetry: Telemetry) -> OtelObserver:
        return telemetry.observer

    @pytest.fixture
    def count(self, telemetry: Telemetry) -> Callable[[], int]:
        return lambda: len(telemetry.spans())


def test_writes_refusals_merges_and_lock_waits_are_counted(root: Path, telemetry: Telemetry) -> None:
    """N-metrics: from real calls; a span has the ledger's ids and is below the caller's."""
    (root / "plan.md").write_text("one\ntwo\nthree\nfour\nfive\n")
    (root / "part").mkdir()
    with (
        Workspace(root, observer=telemetry.observer) as workspace,
        workspace.turn(agent_id="ada") as ada,
        workspace.turn(agent_id="ben", on_stale="merge") as ben,
        workspace.turn(agent_id="cy") as cy,
    ):
        for turn in (ada, ben, cy):
            turn.read_file("plan.md")
        with telemetry.tracers.get_tracer("program").start_as_current_span("tool call") as outer:
            ada.write_file("plan.md", "ONE\ntwo\nthree\nfour\nfive\n")
        ben.write_file("plan.md", "one\ntwo\nthree\nfour\nFIVE\n")
        with pytest.raises(StaleFileError):
            cy.write_file("plan.md", "mine\n")
        with DeliverableLock(root / "part", holder="ada"), pytest.raises(LockContention):
            DeliverableLock(root / "part", holder="ben", observer=telemetry.observer).acquire()
    counts = telemetry.counts()
    assert counts["noclobber.writes"] == 2
    assert counts["noclobber.merges"] == 1
    assert counts["noclobber.refusals"] == 1
    assert counts["noclobber.lock.waits"] == 1
    first = next(span for span in telemetry.spans() if span.name == "noclobber write_file")
    assert first.parent.span_id == outer.get_span_context().span_id
    assert first.attributes["noclobber.ledger.seq"] == 1
    assert first.attributes["noclobber.ledger.hash"].startswith("sha256:")
    assert first.attributes["gen_ai.agent.id"] == "ada"
    refused = next(
        span for span in telemetry.spans() if span.attributes.get("noclobber.event") == "MUTATION_CONFLICT"
    )
    assert refused.status.status_code.name == "ERROR"


def test_a_span_lasts_as_long_as_its_call(root: Path, telemetry: Telemetry) -> None:
    """N-metrics: from the beginning of the call, with what it waited for, to its event on record."""
    before_ns = time.time_ns()
    with Workspace(root, observer=telemetry.observer) as workspace, workspace.turn(agent_id="ada") as ada:
        ada.write_files({"a.md": "1\n", "b.md": "2\n"})
        with pytest.raises(NoclobberError):
            ada.edit_file("a.md", [])
    after_ns = time.time_ns()
    first, second, refused = telemetry.spans()
    assert first.start_time == second.start_time
    assert first.attributes["gen_ai.tool.call.id"] == second.attributes["gen_ai.tool.call.id"]
    for span in (first, second, refused):
        assert before_ns <= span.start_time < span.end_time <= after_ns
    # The commit lies between: a span that began when its event was recorded would be a few microseconds.
    assert first.end_time < refused.start_time


def test_an_observer_that_fails_when_a_call_begins_is_logged_and_nothing_else(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """N-observer: the write lands, and the observer is told of its event."""

    class Failing:
        told = 0

        def began(self, call: ToolCall) -> None:
            raise RuntimeError("no clock")

        def observe(self, event: object) -> None:
            self.told += 1

    observer = Failing()
    with Workspace(root, observer=observer) as workspace, workspace.turn() as turn:
        turn.write_file("a.md", "1\n")
    assert observer.told == 1
    assert "failed to observe that write_file begins" in caplog.text


def test_what_began_is_remembered_within_bounds(telemetry: Telemetry) -> None:
    """N-metrics: calls that leave no event are forgotten."""
    for number in range(3 * MOST_CALLS):
        telemetry.observer.began(ToolCall("read_file", {}, call_id=f"c-{number}"))
    assert len(telemetry.observer._began_ns) == MOST_CALLS


def test_a_command_counts_once_however_many_files_it_changed(telemetry: Telemetry) -> None:
    """N-metrics: one event a file, one commit a command."""
    for call, file in (("c-1", "a"), ("c-1", "b"), ("c-2", "a")):
        telemetry.observer.observe(
            {
                "action_type": "MUTATION",
                "payload": {"tool_name": "run_command", "target_file": file},
                "identity": {"call_id": call},
            }
        )
    assert telemetry.counts()["noclobber.run.commits"] == 2


def test_without_the_observer_nothing_of_opentelemetry_is_imported(root: Path) -> None:
    """N-metrics: off by default, and then it costs nothing."""
    code = (
        "import sys\nfrom noclobber import Workspace\n"
        "with Workspace(sys.argv[1]) as workspace, workspace.turn(agent_id='a') as turn:\n"
        "    turn.write_file('a', 'b')\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", code, str(root)], check=True)
