"""Where Spark looks for the format "millstream" by itself: modules named so, with a class named so."""

from millstream.spark.source import MillstreamSource as DefaultSource

__all__ = ["DefaultSource"]
