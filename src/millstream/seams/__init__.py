"""Defines the interfaces to the outside world (clock, disk, network, workers, entropy) and their real implementations.

Tests replace them.
"""
