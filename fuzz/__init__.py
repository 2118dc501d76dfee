"""Fuzzing of every reader of untrusted input: `python -m fuzz` (make fuzz). `targets` says what is read."""
