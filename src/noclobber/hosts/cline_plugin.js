// Before a call that may write, the hook is asked; what it refuses is skipped, and the model is given the reason as the
// tool's error. (A hook *file* of Cline can only end the whole run.) After a call the hook is told what happened. If
// the hook cannot be run, a call that may write is refused and everything else goes ahead.
import { spawn } from "node:child_process"

const COMMAND = ["noclobber", "hook"]
// What the model is told if the hook cannot be run: what is wrong, and who can repair it.
const BROKEN = ""
// Cline waits 3 seconds for a plugin, and then lets the call through. Our own patience has to end before.
const PATIENCE_MS = 2500
// Tools that write no file; every other tool is asked about, so that one of the next version is checked, too.
const HARMLESS = /^(search_codebase|fetch_web_content|ask_question|spawn_agent|use_skill|skills|submit_and_exit|team_.*)$/
const NOTED = /^(read_files|run_commands)$/

function ask(duty, event) {
  const [program, ...words] = COMMAND
  return new Promise((resolve, reject) => {
    const child = spawn(program, [...words, "cline", duty], { stdio: ["pipe", "pipe", "pipe"] })
    let out = ""
    let err = ""
    const timer = setTimeout(() => (child.kill(), reject(new Error("it did not answer"))), PATIENCE_MS)
    const end = (act, value) => (clearTimeout(timer), act(value))
    child.stdout.setEncoding("utf8").on("data", (text) => (out += text))
    child.stderr.setEncoding("utf8").on("data", (text) => (err += text))
    child.stdin.on("error", () => {})
    child.on("error", (error) => end(reject, error))
    child.on("close", (code) => {
      if (code !== 0) return end(reject, new Error(`it ended with ${code}: ${err}`))
      try {
        end(resolve, out.trim() ? JSON.parse(out) : {})
      } catch (error) {
        end(reject, error)
      }
    })
    child.stdin.end(JSON.stringify(event))
  })
}

let directory = process.cwd()
let main

const about = (ev, { snapshot, toolCall }, more) => {
  main ??= snapshot?.agentId
  return {
    ev,
    input: {
      tool: toolCall?.toolName,
      callID: toolCall?.toolCallId,
      sessionID: snapshot?.conversationId,
      agentID: snapshot?.agentId === main ? "main" : snapshot?.agentId,
      args: toolCall?.input,
    },
    directory,
    ...more,
  }
}

const mayWrite = (tool, text) =>
  NOTED.test(tool) ? text.includes(tool === "run_commands" ? "apply_patch" : ".lock") : !HARMLESS.test(tool)

export default {
  name: "noclobber",
  manifest: { capabilities: ["hooks"] },
  setup: (_, context) => {
    directory = context?.workspaceInfo?.rootPath ?? directory
  },
  hooks: {
    beforeRun: async ({ snapshot }) => {
      try {
        const answer = await ask("note", about("start", { snapshot }))
        if (answer.decision === "warn") return { appendContext: answer.reason }
      } catch (error) {
        console.error(`noclobber: ${error}`)
      }
    },
    beforeTool: async (context) => {
      const tool = String(context.toolCall?.toolName ?? "")
      const isWrite = mayWrite(tool, JSON.stringify(context.toolCall?.input ?? ""))
      if (!isWrite && tool !== "run_commands") return
      try {
        const answer = await ask(tool === "run_commands" ? "shell" : "check", about("before", context))
        if (answer.decision === "deny") return { skip: true, reason: answer.reason }
      } catch (error) {
        if (tool === "read_files" || !isWrite) return // A hook that does not run blocks no command without a patch.
        console.error(`noclobber: ${error}`)
        return { skip: true, reason: BROKEN }
      }
    },
    afterTool: async (context) => {
      const tool = String(context.toolCall?.toolName ?? "")
      if (HARMLESS.test(tool)) return
      const { output, isError } = context.result ?? {}
      try {
        const answer = await ask("note", about("after", context, { output, isError: isError === true }))
        if (answer.decision === "warn") return { appendContext: answer.reason }
      } catch (error) {
        console.error(`noclobber: ${error}`)
      }
    },
    afterRun: async ({ snapshot }) => {
      await ask("note", about("end", { snapshot })).catch((error) => console.error(`noclobber: ${error}`))
    },
  },
}
