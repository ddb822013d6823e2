"""Registers the Spark format "millstream": Spark imports modules named `pyspark_*` and uses their `DefaultSource`."""

from millstream.spark.source import MillstreamSource as DefaultSource

__all__ = ["DefaultSource"]
