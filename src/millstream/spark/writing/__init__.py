"""The Spark sink: checks on the driver, writes in the tasks."""
