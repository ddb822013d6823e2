"""Checks whether a process can start, and prints the results of `--check`."""
