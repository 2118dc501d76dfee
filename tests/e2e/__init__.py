"""Tests with the real hosts: their own programs, a scripted model on loopback, and nothing else."""
