"""Pipelines that are files: run, watched, stopped; and templates to begin from."""
