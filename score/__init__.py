"""
The lost-update scoreboard: what coding agents, frameworks and MCP servers lose, alone and with noclobber.

`make score` plays the same rounds with every subject. A scripted model reads a file; a rival changes it; the
model writes back what it had read, with a line of its own. What counts is on the disk: an update that was
made and is not there is lost.

- `rivals`: who else writes, and how.
- `rounds`: what a model does in a round, and the account of it. Knows no subject.
- `hosts`, `frameworks`, `mcp_servers`: how a round is played with each kind of subject.
- `report`: the table, the JSON and the chart.
"""
