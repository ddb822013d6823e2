"""Simulated clock, disk, network, event loop, workers and entropy."""
