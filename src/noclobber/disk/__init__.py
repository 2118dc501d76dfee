"""
The only folder that talks to the operating system about users' files.

Here are reading (`reading`), naming (`paths`), what the kernel offers (`mutex`, `leases`, `renames`) and the
commit (`commit/`), which `file_guard` offers as one step. Nothing here knows of agents, turns,
policies or ledgers. Promised: a write lands only if the file is still what the caller expects, or it is
refused and nothing has changed. What each filesystem allows is in `filesystems`.
"""
