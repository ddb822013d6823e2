"""Manages local clusters: further brokers on this machine, which run as children of one supervisor."""
