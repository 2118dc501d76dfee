// It takes the place of opencode's own write, edit and apply_patch: the hook checks the write, opencode's own
// dialogue asks the user, and then the hook compares and writes in one step. What the hook refuses is thrown,
// and reaches the model as it is. Other calls are only looked at. If the hook cannot be run, a call that may
// write is refused and everything else goes ahead.
//
// With "lsp" or "formatter" in opencode's configuration its own tools stay, because only they can ask a language
// server or run a formatter; then writes are checked before, and compared after. It imports no npm package.
import { spawn } from "node:child_process"
import { existsSync } from "node:fs"
import path from "node:path"

const COMMAND = ["noclobber", "hook"]
const BROKEN = ""
const SHELL = null // The guarded shell: its PYTHON, its START, and the FOLDER of what a shell reads first.
const PATIENCE_MS = 30000
// Tools that write no file; every other tool is asked about, so that one of the next version is checked, too.
const HARMLESS =
  /^(list|grep|glob|webfetch|websearch|codesearch|todowrite|todoread|task|skill|question|lsp|plan_enter|plan_exit|invalid|execute|batch|list_mcp_resources|list_mcp_resource_templates|read_mcp_resource)$/
// Of the tools of MCP servers, those whose names say that they change or read something.
const MCP_WRITERS = /(write|edit|create|delete|remove|move|rename|patch|replace|insert|save|update|append)/i
const MCP_READERS = /(read|view|open)/i
const MAY_WRITE = (tool) =>
  tool.startsWith("mcp__") ? MCP_WRITERS.test(tool.slice(5)) : !HARMLESS.test(tool) && tool !== "read" && tool !== "bash"
const IS_NOTED = (tool) =>
  tool === "read" || tool === "bash" || MAY_WRITE(tool) || (tool.startsWith("mcp__") && MCP_READERS.test(tool.slice(5)))
const IS_LOCK = (name) => /(^|\/)\.lock[^\/]*$/i.test(String(name ?? ""))
const MAY_PATCH = (args) => typeof args?.command === "string" && args.command.includes("apply_patch")
const OURS = "noclobber's own"

// -- the hook ------------------------------------------------------------------------------------------------

// What the model is told if the hook does not run: the object that says how to go on, and why below it.
const failed = (duty, why) => new Error(duty === "note" || !BROKEN ? why : `${BROKEN}\n${why}`)

// Start the hook and hand it lines. `next(line)` sends one and returns the answer; `end()` sends no more.
function talk(duty) {
  const [program, ...words] = COMMAND
  const child = spawn(program, [...words, "opencode", duty], { stdio: ["pipe", "pipe", "pipe"] })
  let out = ""
  let err = ""
  let failure
  let waiting
  const settle = () => {
    if (!waiting) return
    const end = out.indexOf("\n")
    if (end >= 0) {
      const line = out.slice(0, end)
      out = out.slice(end + 1)
      waiting.resolve(line)
    } else if (failure) waiting.reject(failure)
    else return
    waiting = undefined
  }
  child.stdout.setEncoding("utf8").on("data", (text) => ((out += text), settle()))
  child.stderr.setEncoding("utf8").on("data", (text) => (err += text))
  child.stdin.on("error", () => {})
  child.on("error", (error) => ((failure = failed(duty, error.message)), settle()))
  child.on("close", (code, signal) => {
    // Half an answer of a hook that was killed is none.
    if (code === 0 && out && !out.endsWith("\n")) out += "\n"
    failure ??= code === 0 ? new Error("") : failed(duty, `noclobber's hook ended with ${code ?? signal}: ${err}`)
    settle()
  })
  const answer = (patience) =>
    new Promise((resolve, reject) => {
      const timer = setTimeout(() => (child.kill(), reject(failed(duty, "noclobber's hook did not answer"))), patience)
      const done = (act) => (value) => (clearTimeout(timer), act(value))
      waiting = { resolve: done(resolve), reject: done(reject) }
      settle()
    })
  return {
    next: (line) => (child.stdin.write(`${line}\n`), answer(PATIENCE_MS)),
    end: () => child.stdin.end(),
    last: () => (child.stdin.end(), answer(PATIENCE_MS)),
    send: (line) => child.stdin.write(line),
  }
}

// Ask once. The hook says nothing where there is nothing to say.
async function ask(duty, event) {
  const hook = talk(duty)
  hook.send(JSON.stringify(event))
  const said = await hook.last().catch((error) => {
    if (error.message) throw error
    return ""
  })
  return said.trim() ? JSON.parse(said) : {}
}

// -- tools that take the place of opencode's ------------------------------------------------------------------

const text = (description) => ({ type: "string", description })
const PARAMETERS = {
  write: {
    content: text("The content to write to the file"),
    filePath: text("The absolute path to the file to write (must be absolute, not relative)"),
  },
  edit: {
    filePath: text("The absolute path to the file to modify"),
    oldString: text("The text to replace"),
    newString: text("The text to replace it with (must be different from oldString)"),
    replaceAll: { type: "boolean", description: "Replace all occurrences of oldString (default false)" },
  },
  apply_patch: { patchText: text("The full patch text that describes all changes to be made") },
}
const holds = (folder, file) => !path.relative(folder, file).startsWith("..")

// A diff as opencode shows it: without the indentation that all of its lines share.
function outdented(diff) {
  const isLine = (line) => /^[-+ ]/.test(line) && !/^(---|\+\+\+)/.test(line)
  const lines = diff.split("\n")
  const depths = lines.filter((line) => isLine(line) && line.slice(1).trim()).map((line) => line.slice(1).search(/\S/))
  const depth = Math.min(...depths)
  if (!depths.length || depth === 0) return diff
  return lines.map((line) => (isLine(line) ? line[0] + line.slice(1 + depth) : line)).join("\n")
}

// What opencode's own tool would say, ask and show for a call. `files` is what the hook has planned.
const SHAPES = {
  write([file], { worktree }) {
    const diff = outdented(file.diff)
    return {
      ask: { patterns: [path.relative(worktree, file.path)], metadata: { filepath: file.path, diff } },
      result: {
        title: path.relative(worktree, file.path),
        output: "Wrote file successfully.",
        metadata: { diagnostics: {}, filepath: file.path, exists: file.exists },
      },
    }
  },
  edit([file], { worktree }) {
    const diff = outdented(file.diff)
    const filediff = { file: file.path, patch: diff, additions: file.additions, deletions: file.deletions }
    return {
      ask: { patterns: [path.relative(worktree, file.path)], metadata: { filepath: file.path, diff } },
      result: {
        title: path.relative(worktree, file.path),
        output: "Edit applied successfully.",
        metadata: { diagnostics: {}, diff, filediff },
      },
    }
  },
  apply_patch(planned, { worktree, directory }) {
    const moved = planned.filter((file) => file.movedFrom).map((file) => path.resolve(directory, file.movedFrom))
    const files = planned
      .filter((file) => !(file.type === "delete" && moved.includes(file.path)))
      .map((file) => ({
        filePath: file.movedFrom ? path.resolve(directory, file.movedFrom) : file.path,
        relativePath: path.relative(worktree, file.path),
        type: file.movedFrom ? "move" : file.type,
        patch: outdented(file.diff),
        additions: file.additions,
        deletions: file.deletions,
        movePath: file.movedFrom ? file.path : undefined,
      }))
    const diff = files.map((file) => `${file.patch}\n`).join("")
    const patterns = files.map((file) => path.relative(worktree, file.filePath))
    const letters = { add: "A", delete: "D" }
    const lines = files.map((file) => `${letters[file.type] ?? "M"} ${file.relativePath}`)
    const output = `Success. Updated the following files:\n${lines.join("\n")}`
    return {
      ask: { patterns, metadata: { filepath: patterns.join(", "), diff, files } },
      result: { title: output, output, metadata: { diff, files, diagnostics: {} } },
    }
  },
}

const queues = new Map()

// One call after the other for each file, so that edits in one message build on each other.
async function inTurn(keys, work) {
  const before = keys.map((key) => queues.get(key))
  let finish
  const own = new Promise((resolve) => (finish = resolve))
  for (const key of keys) queues.set(key, own)
  await Promise.all(before)
  try {
    return await work()
  } finally {
    for (const key of keys) if (queues.get(key) === own) queues.delete(key)
    finish()
  }
}

async function carryOut(tool, args, context, agentID) {
  const { directory, worktree, sessionID, callID } = context
  const hook = talk("write")
  try {
    const event = { ev: "write", input: { tool, sessionID, callID, agentID, args }, directory, worktree }
    const plan = JSON.parse(await hook.next(JSON.stringify(event)))
    if (plan.decision !== "ask") throw new Error(plan.reason)
    const touched = plan.files.map((file) => file.path)
    for (const file of touched) {
      if (holds(directory, file) || (worktree !== "/" && holds(worktree, file))) continue
      const pattern = path.join(path.dirname(file), "*")
      const metadata = { filepath: file, parentDir: path.dirname(file) }
      await context.ask({ permission: "external_directory", patterns: [pattern], always: [pattern], metadata })
    }
    const shape = SHAPES[tool](plan.files, { directory, worktree })
    await context.ask({ permission: "edit", always: ["*"], ...shape.ask })
    const done = JSON.parse(await hook.next("go"))
    if (done.decision !== "done") throw new Error(done.reason)
    if (done.told) shape.result.output += `\n${done.told}`
    return shape.result
  } finally {
    hook.end()
  }
}

const isMissing = (file, directory) => typeof file === "string" && !existsSync(path.resolve(directory, file))
const named = (args, directory) =>
  typeof args?.filePath === "string" ? [path.resolve(directory, args.filePath)] : [directory]

const tools = (agentOf) =>
  Object.fromEntries(
    Object.keys(PARAMETERS).map((tool) => [
      tool,
      {
        description: `${OURS} ${tool}`,
        args: PARAMETERS[tool],
        execute: (args, context) =>
          inTurn(named(args, context.directory), async () =>
            carryOut(tool, args, context, await agentOf(context.sessionID)),
          ),
      },
    ]),
  )

// -- the plugin -----------------------------------------------------------------------------------------------

export const Noclobber = async ({ client, directory, worktree }) => {
  const builtIn = {}
  const agents = new Map()
  const guarded = new Set() // Calls whose command runs in the guarded shell.
  // opencode calls a tool of an MCP server by the server's name and the tool's, with `_` between them. The hook is told
  // `mcp__server__tool`, as other hosts say: it must not take `github_create_issue` for a tool of opencode.
  let servers = []
  const nameOf = (tool) => {
    const server = servers.find((name) => tool.startsWith(`${name}_`))
    return server === undefined ? tool : `mcp__${server}__${tool.slice(server.length + 1)}`
  }
  // Formatters that opencode runs inside its own tools. The hook runs one again on a copy, to know what it made.
  let formatters = []
  const formattersOf = (args) => {
    const named = `${args?.filePath ?? args?.patchText ?? ""}\n`
    const isMeant = ({ extensions }) => !extensions || extensions.some((end) => named.includes(`${end}\n`))
    return formatters.filter(isMeant).map(({ words }) => words)
  }
  // A subagent has a session of its own, below another one. Asked once a session; the answer cannot change.
  const agentOf = (sessionID) => {
    if (!agents.has(sessionID)) {
      const found = Promise.resolve(client?.session?.get({ path: { id: sessionID } }))
      const name = (session) => (session?.data?.parentID ? `subagent-${sessionID.slice(-8)}` : "main")
      agents.set(sessionID, found.then(name, () => "main"))
    }
    return agents.get(sessionID)
  }
  const about = async (ev, input, output) => ({
    ev,
    input: { ...input, agentID: await agentOf(input.sessionID) },
    output,
    directory,
    worktree,
    formatters: formattersOf(output?.args ?? input.args),
  })
  const hooks = {
    tool: tools(agentOf),
    config: async (config) => {
      if (config?.lsp || config?.formatter) hooks.tool = {}
      const onFiles = ({ disabled, command }) => !disabled && command?.some((word) => word.includes("$FILE"))
      formatters = Object.values(Object(config?.formatter))
        .filter(onFiles)
        .map(({ command, environment = {}, extensions }) => {
          const settings = Object.entries(environment).map(([name, value]) => `${name}=${value}`)
          return { extensions, words: ["env", ...settings, ...command.map((word) => word.replace("$FILE", "{copy}"))] }
        })
      const names = Object.keys(config?.mcp ?? {}).map((name) => name.replace(/[^a-zA-Z0-9_-]/g, "_"))
      servers = names.sort((one, other) => other.length - one.length)
    },
    // The model is offered opencode's own description and parameters: it must not meet another tool.
    "tool.definition": async ({ toolID }, output) => {
      if (!hooks.tool[toolID]) return
      if (!output.description?.startsWith(OURS)) {
        builtIn[toolID] = { ...output }
        return
      }
      for (let tries = 0; !builtIn[toolID] && tries < 50; tries++) await new Promise((wake) => setTimeout(wake, 1))
      Object.assign(output, builtIn[toolID] ?? {})
    },
    "tool.execute.before": async (input, output) => {
      if (hooks.tool[input.tool]) return
      if (input.tool === "read" && isMissing(output.args?.filePath, directory)) {
        // No event follows a read that fails. It is told now: the agent learns that there is no file.
        const failed = { ...input, args: output.args }
        await ask("note", await about("failed", failed)).catch((error) => console.error(String(error)))
      }
      const tool = nameOf(String(input.tool ?? ""))
      const mayWrite = MAY_WRITE(tool) || (tool === "bash" && MAY_PATCH(output.args))
      const isLock = tool === "read" && IS_LOCK(output.args?.filePath)
      if (!mayWrite && !isLock && tool !== "bash") return
      const asked = { ...(await about("before", { ...input, tool }, output)), routes: tool === "bash" && !!SHELL }
      const answer = await ask(input.tool === "bash" ? "shell" : "check", asked).catch((error) => {
        if (mayWrite) throw error
        return {} // A hook that does not run blocks no read, and no command without a patch.
      })
      if (answer.decision === "deny") throw new Error(answer.reason)
      if (answer.decision === "guard") guarded.add(input.callID)
      // A stale write that was merged. opencode asks its user about what it is given here.
      if (answer.decision === "rewrite") Object.assign(output.args, answer.args)
    },
    // A command that the hook wants guarded: its shell reads a file of ours first, which runs it as a transaction. The
    // command itself is left alone, because the user's permission rules judge it.
    "shell.env": async (input, output) => {
      if (!guarded.delete(input.callID)) return
      const { BASH_ENV = "", ZDOTDIR = "" } = { ...process.env, ...output.env }
      const mine = { ...SHELL, HOST: "opencode", SESSION: input.sessionID, BASH_ENV, ZDOTDIR }
      for (const [name, value] of Object.entries(mine)) output.env[`NOCLOBBER_SHELL_${name}`] = value
      output.env.BASH_ENV = `${SHELL.FOLDER}/bash_env.sh`
      output.env.ZDOTDIR = SHELL.FOLDER
    },
    "tool.execute.after": async (input, output) => {
      if (hooks.tool[input.tool]) return
      const tool = nameOf(String(input.tool ?? ""))
      if (!IS_NOTED(tool)) return
      try {
        const answer = await ask("note", await about("after", { ...input, tool }, output))
        if (answer.decision !== "warn") return
        // The result of an MCP server's tool is a list of parts.
        if (Array.isArray(output.content)) output.content.push({ type: "text", text: answer.reason })
        else output.output = `${output.output ?? ""}\n${answer.reason}`
      } catch (error) {
        console.error(String(error))
      }
    },
    // The start of a turn: what others have changed since the last one goes beside what the user said. `synthetic`: for
    // the model, and not shown as the user's words. Its id puts it behind theirs.
    "chat.message": async ({ sessionID }, output) => {
      try {
        const answer = await ask("note", await about("chat.message", { sessionID }))
        if (answer.decision !== "warn" || !output.message) return
        const id = `${output.parts.at(-1)?.id ?? "prt_"}n`
        const part = { id, sessionID, messageID: output.message.id, type: "text", text: answer.reason }
        output.parts.push({ ...part, synthetic: true })
      } catch (error) {
        console.error(String(error))
      }
    },
    event: async ({ event }) => {
      if (event?.type !== "session.idle" && event?.type !== "session.deleted") return
      const sessionID = event.properties?.sessionID ?? event.properties?.info?.id
      if (typeof sessionID !== "string") return
      await ask("note", await about(event.type, { sessionID })).catch((error) => console.error(String(error)))
    },
  }
  return hooks
}
