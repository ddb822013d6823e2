"""Pipelines from files: run, monitor and stop them; templates to start from."""
