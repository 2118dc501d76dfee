"""
Real processes that fight over one file, and the books that say who lost what.

| module | idea |
|---|---|
| `versions` | a tagged file: every version says who wrote it, on top of what, and whether it is whole |
| `hand`, `outsiders` | writers that have never heard of noclobber, one function for each way of saving |
| `rivals` | deliberately weak guards, to show what the real one is for and that the books can find a loss |
| `agents` | processes that read, change and write through a guard; and one that only looks |
| `accounting` | from everybody's private logs to: made, lost through the guard, kept aside, withdrawn, torn |
| `arena` | one round: prepare a folder, start the processes, wait, ask the accounting |
| `story`, `numbers` | `noclobber demo` |

The same code runs in the demo (seconds) and in the torture (minutes). Nothing else imports it.
"""
