"""
`noclobber demo`: a story, and the same contest with plain writes and through noclobber.

| module | idea |
|---|---|
| `story`, `editor_save` | an agent, and a person who saves with an editor |
| `contest` | processes that write to one file at once, and a count of whose lines are gone |
| `numbers`, `progress_bar`, `recording` | the contest both ways, as a table, a bar and a picture |
"""
