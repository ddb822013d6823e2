"""Implements iterators: the coordinator issues offset ranges to clients, and partition leaders check issued
iterators."""
