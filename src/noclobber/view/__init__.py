"""
What a person sees of a project: the live page of `noclobber view`, and the same content for `noclobber
watch`.

It only looks. Facts come from the ledger's end and what is appended to it (`ledger_feed`), from turns,
claims, locks and sessions (`workspace_state`), and from `doctor`. What a person decides to do is done by a
command of `noclobber` in a process of its own (`actions`): there is no second way to write.
"""
