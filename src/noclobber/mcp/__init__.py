"""
`noclobber mcp ROOT…`: guarded file tools for any MCP client.

A superset of the reference filesystem server's tools, with the same names, parameters, answers and error
texts, so that a client's configuration changes in one line. What is added: reads carry a hash and an
observation id, writes may say what they expect, a stale write is refused, and every write is atomic and
on record.

- `roots` says where the tools may go; `words` spells operating-system errors as that server does.
- `table` lists the tools as data; `arguments` checks a call's arguments against it.
- `files`, `listing`, `locks` carry tools out; `editing`, `patch`, `globs`, `collation` are what they need.
- `memory` is what a connection has seen: the turns that its writes are judged by.
- `toolbox` finds the tool for a call and phrases its answer.
- `server` speaks the protocol, `stdio` is its wire. These two import the SDK (0.7 s), and nothing else does.

docs/mcp.md is for users.
"""
