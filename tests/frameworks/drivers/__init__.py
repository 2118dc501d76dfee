"""
One module for each framework, with a class `Driver`. Its framework must be installed to import it.

The name is the extra in pyproject.toml; the tuple has what the environment needs besides it.
"""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version

from tests.frameworks.driver import FrameworkDriver

FRAMEWORKS: dict[str, tuple[str, ...]] = {
    "tools": (),
    "deepagents": ("langchain-community",),
    "claude-agent-sdk": (),
    "openai-agents": (),
    "pydantic-ai": ("pydantic-ai-harness",),
    "google-adk": (),
    "agent-framework": (),
    "crewai": ("crewai-tools",),
}
"""Every framework by name, with packages of which its own tools are part and which the extra does not need."""

PROBES = {
    "tools": "",
    "deepagents": "deepagents",
    "claude-agent-sdk": "claude-agent-sdk",
    "openai-agents": "openai-agents",
    "pydantic-ai": "pydantic-ai-slim",
    "google-adk": "google-adk",
    "agent-framework": "agent-framework-core",
    "crewai": "crewai",
}
"""The package by which one sees that a framework is installed."""


def is_installed(name: str) -> bool:
    """True if this environment has the framework."""
    if not PROBES[name]:
        return True
    try:
        version(PROBES[name])
    except PackageNotFoundError:
        return False
    return True


class InterfaceMovedError(Exception):
    """The framework is installed, and is no longer what the adapter or its driver was written for."""


def driver(name: str) -> type[FrameworkDriver]:
    """Return a framework's driver. `InterfaceMovedError` if the framework has changed under it."""
    try:
        module = importlib.import_module(f"tests.frameworks.drivers.{name.replace('-', '_')}")
    except (ImportError, AttributeError, TypeError) as error:
        raise InterfaceMovedError(
            f"{PROBES[name]} {version(PROBES[name])} is not what noclobber's adapter was written for: {error}. "
            "Change the adapter, or narrow its range in pyproject.toml."
        ) from error
    found: type[FrameworkDriver] = module.Driver
    return found
