"""Implements consumer groups: pure state machines for members, assignments, offsets and iterators, and their
runtime."""
