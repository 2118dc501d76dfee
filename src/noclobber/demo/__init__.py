"""
Real processes that write to one file at the same time, and an accounting of which updates were lost.

| module | idea |
|---|---|
| `versions` | a tagged file: every version says who wrote it, on top of what, and whether it is whole |
| `outside_writer`, `outsiders` | writers that do not use noclobber, one function for each way of saving |
| `editor_save` | a person who saves with an editor, for the story |
| `weaker_guards` | guards that check less, to show what is lost then, and that the accounting finds it |
| `agents` | processes that read, change and write through a guard, and one that only reads |
| `accounting` | from everybody's private logs to: made, lost through the guard, kept aside, withdrawn, torn |
| `arena` | one round: prepare a folder, start the processes, wait, account |
| `story`, `numbers`, `progress_bar` | `noclobber demo` |

The demo runs this code for seconds, the torture for minutes. Nothing else imports it.
"""
