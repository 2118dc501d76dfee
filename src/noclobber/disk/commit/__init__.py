"""Replace, create, delete and move files that are still what the caller saw: all files of a call, or none."""
