"""
The long proof: outsiders of every kind, guards, `kill -9`, and an accounting of what was lost.

`python -m torture` runs for some minutes, is bounded and seeded, prints one line a round and ends with
exit code 1 if a bar is missed. The processes and the accounting are in `noclobber.demo`, because the demo
runs the same rounds for a few seconds; here are the plan of the rounds, the bars and the report.
"""
