"""Simulates the outside world: clocks, disk, network, event loop, workers and entropy."""
