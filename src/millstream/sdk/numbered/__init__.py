"""Rows under a name of the writer's own, numbered in each partition: a repeated writer adds what is missing."""
