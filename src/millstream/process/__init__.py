"""Provides what every Millstream process needs: settings, logs, metrics, signals, exit codes, exit with the parent."""
