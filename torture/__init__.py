"""
The long proof: outsiders of every kind, guards, `kill -9`, and an accounting of what was lost.

`python -m torture` runs for some minutes, is bounded and seeded, prints one line a round and ends with
exit code 1 if a bar is missed. One round:

| module | idea |
|---|---|
| `versions` | a tagged file: every version says who wrote it, on top of what, and whether it is whole |
| `outside_writer`, `outsiders` | writers that do not use noclobber, one function for each way of saving |
| `weaker_guards` | guards that check less, to show what is lost then, and that the accounting finds it |
| `agents` | processes that read, change and write through a guard, and one that only reads |
| `accounting` | from everybody's private logs to: made, lost through the guard, kept aside, withdrawn, torn |
| `arena` | prepare a folder, start the processes, wait, account |
"""
