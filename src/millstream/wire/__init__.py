"""Encodes and decodes protocol messages without I/O: Kafka's messages and Millstream's own.

JSON schemas define most messages (`messages`); Produce and Fetch, which carry records, have hand-written codecs.
"""
