"""Serves partitions: append, read, high watermark, leader epochs, idempotent producers and message ids."""
