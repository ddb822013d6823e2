"""Opens, creates, grows, deletes and maintains the partitions that this broker serves."""
