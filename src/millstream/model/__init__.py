"""The vocabulary: names, ids, limits, and the one error table."""
