"""The Spark source: start positions, planning on the driver, and reads on the executors."""
