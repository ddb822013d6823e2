"""Writes DataFrames to topics: checks on the driver, writes in the tasks."""
