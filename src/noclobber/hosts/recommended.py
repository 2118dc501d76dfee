"""Which way of installing works best in which host, and why: `install` says it, and docs/hosts repeats it."""

from __future__ import annotations

from typing import NamedTuple


class Recommendation(NamedTuple):
    """The way that works best in a host."""

    form: str
    """`hooks`, `user` (hooks for all projects) or `plugin`."""
    why: str
    """A sentence."""

    def advice(self, chosen: str) -> str:
        """Return what to tell a user who has chosen one of these ways."""
        if chosen == self.form:
            return f"this is the best way to install it here. {self.why}"
        if (chosen, self.form) == ("user", "plugin"):
            return f"this works as well as `--as plugin`. {self.why}"
        better = {"hooks": "without `--user`", "user": "`--user`", "plugin": "`--as plugin`"}[self.form]
        return f"{better} works better. {self.why}"


RECOMMENDED = {
    "claude-code": Recommendation(
        "hooks",
        "This file is yours alone, and git leaves it out; `--portable` uses the one that a team shares.",
    ),
    "cline": Recommendation(
        "hooks", "It is one file, a plugin of Cline's; its hook files can only end a run."
    ),
    "codex": Recommendation(
        "plugin",
        "Codex asks once, for all projects, whether to trust the hooks; otherwise it asks in each project.",
    ),
    "copilot": Recommendation(
        "plugin", "Hooks in a project do not run in a folder that was not trusted, for example with `-p`."
    ),
    "cursor": Recommendation("hooks", "There is no other way."),
    "gemini": Recommendation(
        "plugin",
        "Hooks in a project do not run in a folder that was not trusted, for example with `--skip-trust`.",
    ),
    "opencode": Recommendation(
        "user", "It is one file. With `--user` opencode has no second folder to prepare at its first start."
    ),
    "qwen": Recommendation("plugin", "Hooks in a project do not run in a folder that was not trusted."),
}
