"""Implements the consumer protocol (KIP-848): the broker assigns partitions, and each member reconciles on its
own."""
