"""
What it takes to answer like the server that this one replaces, `@modelcontextprotocol/server-filesystem`.

Nothing here knows of turns, hashes or the protocol. A change here must keep the recorded answers
(tests/data/mcp) the same.

- `os_errors`: operating-system errors in that server's words.
- `editing`: how `edit_file` finds the text to replace.
- `globs`, `extglob`: the patterns of searches and trees.
- `collation`: the order of names in a listing.
"""
