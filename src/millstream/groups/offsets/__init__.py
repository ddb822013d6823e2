"""Keeps the committed offsets of groups, and removes those of deleted topics."""
