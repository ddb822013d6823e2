"""Feeds of partitions (position, leader and retries) and the chunks of records that they fetch."""
