"""The plugin that opencode loads: it asks our hook before and after each call, and throws what is refused."""

from __future__ import annotations

import json
import os
import sys

MARK = "// Written by `noclobber install opencode`; `noclobber install opencode --uninstall` removes it."

_SOURCE = """\
%(mark)s
// Before a call the hook is asked, and what it refuses is thrown; the message reaches the model as it is.
// If the hook cannot be asked, a call that may write is refused and everything else goes ahead.
import { spawnSync } from "node:child_process"

const COMMAND = %(command)s
const WRITES = ["write", "edit", "multiedit", "apply_patch", "patch"]
const IS_LOCK = (path) => /(^|\\/)\\.lock[^\\/]*$/i.test(String(path ?? ""))
const MAY_PATCH = (args) => typeof args?.command === "string" && args.command.includes("apply_patch")

function ask(duty, event) {
  const [program, ...words] = COMMAND
  const done = spawnSync(program, [...words, "opencode", duty], {
    input: JSON.stringify(event),
    encoding: "utf8",
    timeout: 30000,
    maxBuffer: 1 << 24,
  })
  if (done.error) throw done.error
  if (done.status !== 0) throw new Error(`noclobber's hook ended with ${done.status}: ${done.stderr}`)
  return done.stdout.trim() ? JSON.parse(done.stdout) : {}
}

export const Noclobber = async ({ directory, worktree }) => ({
  "tool.execute.before": async (input, output) => {
    const mayWrite = WRITES.includes(input.tool) || (input.tool === "bash" && MAY_PATCH(output.args))
    if (!mayWrite && !(input.tool === "read" && IS_LOCK(output.args?.filePath))) return
    const answer = ask("check", { ev: "before", input, output, directory, worktree })
    if (answer.decision === "deny") throw new Error(answer.reason)
  },
  "tool.execute.after": async (input, output) => {
    if (!WRITES.includes(input.tool) && input.tool !== "read" && input.tool !== "bash") return
    try {
      const answer = ask("note", { ev: "after", input, output, directory, worktree })
      if (answer.decision === "warn") output.output = `${output.output ?? ""}\\n${answer.reason}`
    } catch (error) {
      console.error(String(error))
    }
  },
  event: async ({ event }) => {
    if (event?.type !== "session.idle" && event?.type !== "session.deleted") return
    const sessionID = event.properties?.sessionID ?? event.properties?.info?.id
    try {
      ask("note", { ev: event.type, input: { sessionID }, directory, worktree })
    } catch (error) {
      console.error(String(error))
    }
  },
})
"""


def source(*, portable: bool = False) -> str:
    """Return the plugin's text for this machine, or for any that has `noclobber` on its path."""
    from noclobber.hosts.hook_entries import START

    words = ["noclobber", "hook"] if portable else [os.path.realpath(sys.executable), "-I", "-S", START]
    return _SOURCE % {"mark": MARK, "command": json.dumps(words)}
