"""Assembles one broker from its parts: settings, wiring, start, stop and the operator port."""
