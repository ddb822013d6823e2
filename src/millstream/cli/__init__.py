"""Implements the `millstream` command line, one module per command group. Commands import what they need on demand."""
