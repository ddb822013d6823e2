"""Shared parts of every Millstream process: settings, logs, metrics, signals, exit codes, exit with the parent."""
