"""
Guarded file tools inside agent frameworks: one module for each framework, imported only by who asks for it.

    from noclobber.adapters.deepagents import GuardedBackend
    agent = create_deep_agent(model=..., backend=GuardedBackend("path/to/project"))

Each is an extra of the package (`pip install "noclobber[deepagents]"`) and has a page in docs/frameworks/.

What all of them mean by their words:

| here | in a framework |
|---|---|
| session | an agent's run; a conversation or thread, where the framework keeps one |
| turn | one run of the agent, from the request to its answer, with all tool calls of each model's step |
| agent | the agent's name; a subagent or a parallel branch is an agent with a snapshot of its own |
| call | the id that the model gave to its tool call |

| module | what it has |
|---|---|
| `callers` | who calls, as a framework tells it |
| `runs` | the turn that a caller's calls belong to, and when what was seen is forgotten |
| `shared` | one set of turns for all adapters of one workspace, made from what a user passes |
| `own_tools` | a check around tools of the user's own |
| `extras` | a framework that is not installed, or not in a version that fits |
| `tool_io` | a framework's own file tools over a guarded folder: what a call reads and writes |
| `otel` | no framework: metrics and traces for OpenTelemetry |
| `call_queue` | parallel edits, which those tools would lose |

A framework's module is named after its package; who calls there may have a module of its own (`crewai_runs`).
It holds what that framework alone needs, and no rule of its own about what is stale.
"""
