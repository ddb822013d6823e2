"""Bytes to messages and back, without any input or output: Kafka's messages and our own.

Most messages are read and written by the schemas (`messages`); Produce and Fetch, which carry the records, by hand.
"""
