"""Stores the facts that brokers must agree on: brokers, topics, partitions, leaders and producer ids, as SQL tables."""
