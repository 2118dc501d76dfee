"""`noclobber ledger export`: every format, also of a ledger that is damaged."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from noclobber.ledger import AgentTraceLedger
from tests.rigs.commands import run
from tests.rigs.ledgers import START_S, event, filled_ledger


@pytest.fixture(params=["from the root", "absolute"])
def ledger(root: Path, request: pytest.FixtureRequest) -> Iterator[AgentTraceLedger]:
    """With paths as they are written now (ruling 27), and as earlier versions wrote them."""
    with filled_ledger(root, "" if request.param == "from the root" else f"{root}/") as ledger:
        yield ledger


def exported(root: Path, how: str, *words: str) -> str:
    done = run("ledger", "export", "--format", how, *words, cwd=root)
    assert (done.code, done.err) == (0, "")
    return done.out


def test_jsonl_is_the_ledger_byte_for_byte(ledger: AgentTraceLedger, root: Path) -> None:
    """R-ledger: an export still verifies."""
    text = exported(root, "jsonl")
    assert text.encode() == (root / ".noclobber" / "agent_trace.jsonl").read_bytes()
    (root / "copy.jsonl").write_text(text)
    assert AgentTraceLedger(root / "copy.jsonl").verify().event_count == 5


def test_csv_has_every_fact_and_no_formula(ledger: AgentTraceLedger, root: Path) -> None:
    """N-cli: a file called `=HYPERLINK(…)` must not become one in a spreadsheet."""
    ledger.append(event("MUTATION_REFUSED", '=HYPERLINK("http://x")', '@ana,\n"b"'))
    rows = list(csv.DictReader(io.StringIO(exported(root, "csv"))))
    assert [row["seq"] for row in rows] == ["1", "2", "3", "4", "5", "6"]
    assert rows[1]["baseline_hash"] == "sha256:" + "a" * 64
    assert rows[1]["agent_id"] == "ben"
    destination = list(ledger.events())[3]["payload"]["destination"]
    assert json.loads(rows[3]["more"]) == {"payload": {"destination": destination}}
    assert json.loads(rows[4]["more"])["payload"] == {"folder": f"{root}/q3", "pid": 7}
    assert rows[5]["target_file"] == '\'=HYPERLINK("http://x")'
    assert rows[5]["agent_id"] == '\'@ana,\n"b"'


AGENT_TRACE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["action_type", "payload", "result"],
    "properties": {
        "action_type": {"const": "MUTATION_CONFLICT"},
        "payload": {
            "type": "object",
            "additionalProperties": False,
            "required": ["tool_name", "target_file", "baseline_hash", "current_hash"],
            "properties": {
                "tool_name": {"type": "string"},
                "target_file": {"type": "string"},
                "baseline_hash": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
                "current_hash": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
            },
        },
        "result": {"const": {"status": "DENIED", "error_type": "STALE_FILE"}},
    },
}


def test_agent_trace_is_the_research_pages_object_and_nothing_else(
    ledger: AgentTraceLedger, root: Path
) -> None:
    """R-ledger: word for word; other kinds are left out."""
    [line] = exported(root, "agent-trace").splitlines()
    jsonschema.validate(json.loads(line), AGENT_TRACE)


def test_otlp_is_what_opentelemetrys_own_parser_takes(ledger: AgentTraceLedger, root: Path) -> None:
    """N-cli: parsed with the official message definitions, unknown fields refused."""
    logs = pytest.importorskip("opentelemetry.proto.logs.v1.logs_pb2", reason="needs opentelemetry-proto")
    from google.protobuf import json_format

    ledger.append(
        event("MUTATION", "/x", "ana", kept=["/k"], count=3, share=0.5, yes=True, nested={"a": None})
    )
    data = json_format.Parse(exported(root, "otlp"), logs.LogsData())
    records = data.resource_logs[0].scope_logs[0].log_records
    assert len(records) == 6
    conflict = records[1]
    assert conflict.time_unix_nano == int(START_S + 60) * 10**9
    assert (conflict.severity_text, conflict.event_name) == ("WARN", "noclobber.mutation_conflict")
    facts = {attribute.key: attribute.value for attribute in conflict.attributes}
    assert facts["file.path"].string_value == f"{root}/docs/plan.md"
    assert facts["gen_ai.agent.id"].string_value == "ben"
    assert facts["error.type"].string_value == "STALE_FILE"
    assert facts["noclobber.ledger.seq"].int_value == 2
    last = {attribute.key: attribute.value for attribute in records[5].attributes}
    assert last["noclobber.kept"].array_value.values[0].string_value == "/k"
    assert (last["noclobber.count"].int_value, last["noclobber.share"].double_value) == (3, 0.5)


def test_otlp_comes_in_batches(root: Path) -> None:
    """N-cli: constant memory, and no request larger than a collector takes."""
    (root / ".noclobber").mkdir()
    with AgentTraceLedger(root / ".noclobber" / "agent_trace.jsonl") as ledger:
        for number in range(600):
            ledger.append(event("MUTATION", f"/{number}", "ana"))
    batches = [json.loads(line) for line in exported(root, "otlp").splitlines()]
    sizes = [len(batch["resourceLogs"][0]["scopeLogs"][0]["logRecords"]) for batch in batches]
    assert sizes == [512, 88]


@pytest.mark.parametrize("how", ["jsonl", "csv", "agent-trace", "otlp"])
@pytest.mark.broken_ledger
def test_an_export_of_a_damaged_ledger_has_the_rest_and_says_so(
    ledger: AgentTraceLedger, root: Path, how: str
) -> None:
    """R-ledger: exit code 1, the bad line on stderr, the good ones on stdout."""
    with open(ledger.path, "ab") as file:
        file.write(b"[1]\n\xff\xff\n" + b"x" * (1 << 21) + b"\n")
    ledger.append(event("MUTATION_CONFLICT", "/after", "ana"))
    done = run("ledger", "export", "--format", how, cwd=root)
    assert done.code == 1
    assert "not a ledger entry" in done.err
    assert "/after" in done.out


@pytest.mark.broken_ledger
def test_events_of_other_programs_are_shown_as_well_as_can_be(root: Path) -> None:
    """R-ledger: an envelope is all that is promised."""
    (root / ".noclobber").mkdir()
    with AgentTraceLedger(root / ".noclobber" / "agent_trace.jsonl") as ledger:
        ledger.append({"action_type": "OTHER", "payload": [1], "result": "fine", "identity": None})
        ledger.append({"action_type": "OTHER", "payload": {"path": 7}, "more": {"deep": [None]}})
    for how in ("jsonl", "csv", "agent-trace", "otlp"):
        exported(root, how)
    assert run("ledger", "show", "--jsonl", "--file", "x", cwd=root).out == ""
    assert run("ledger", "show", cwd=root).out.count("OTHER") == 2
