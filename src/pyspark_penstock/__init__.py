"""Where Spark looks for the format "penstock" by itself: modules named so, with a class named so."""

from penstock.spark.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
