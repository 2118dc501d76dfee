"""The hosts that tests drive, one file each. A new driver is added to the table here."""

from __future__ import annotations

from tests.e2e.driver import HostDriver
from tests.e2e.drivers.claude_code import ClaudeCode
from tests.e2e.drivers.cline import Cline
from tests.e2e.drivers.codex import Codex
from tests.e2e.drivers.copilot import Copilot
from tests.e2e.drivers.gemini import Gemini
from tests.e2e.drivers.opencode import Opencode
from tests.e2e.drivers.qwen import Qwen

DRIVERS: dict[str, HostDriver] = {
    driver.name: driver
    for driver in (ClaudeCode(), Cline(), Codex(), Copilot(), Gemini(), Opencode(), Qwen())
}
