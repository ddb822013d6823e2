"""Implements the classic group protocol: members join in rounds, and one member assigns the partitions."""
