"""
`noclobber mcp ROOT…`: guarded file tools for any MCP client.

A superset of the reference filesystem server's tools, with the same names, parameters, answers and error
texts, so that a client's configuration changes in one line. What is added: reads return a hash and an
observation id, writes may say what they expect, a stale write is refused, and every write is atomic and
recorded.

The way of a call: `server` (the protocol; `stdio` is its transport) → `dispatch` → `arguments`, which checks
them → the tool in `tools/` → the connection's turn. Only `server` and `stdio` import the SDK (0.7 s).

- `tools/`: every tool, defined beside the function that carries it out.
- `connection`: what one client has seen, and so what its writes are checked against.
- `roots`: where the tools may go.
- `reference/`: what it takes to answer like the server that this one replaces.

docs/mcp.md is for users.
"""
