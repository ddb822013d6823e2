"""Reads topics into Spark: start positions, planning on the driver, and fetching on the executors."""
