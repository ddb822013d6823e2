"""Simulation runs of a whole broker: plan, workload, faults, history and checker."""
