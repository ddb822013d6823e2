"""Runs a whole simulated broker from one seed: plan, workload, faults, history and checker."""
