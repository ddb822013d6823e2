"""Implements the commands, one module per command group."""
