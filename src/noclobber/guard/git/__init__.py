"""
git on a clone that several agents share: commits of what one of them wrote, and commands that reach too far.

Whose a change is, the ledger says; what it was, the kept versions say; what is committed already, git says.
Nothing in here changes a file of the work tree.
"""
