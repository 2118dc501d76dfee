"""
Replace, create, delete and move files that are still what the caller saw: all files of a call, or none.

`committer` is the entrance for one file, `many` for several, `remove` for delete and move. Each enters the
critical section (`section`), takes files through their steps (`swap`, `inplace`), and leaves displaced
versions to the `sweep`. What a process writes down first (`journal`) lets the next one finish after a crash
(`recovery`). Only the modules here touch what is in `.noclobber/swap`, `notes` and `kept`.
"""
