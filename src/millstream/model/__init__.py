"""The vocabulary: ids, limits, the error table, and the seams to time, threads, chance and network."""
