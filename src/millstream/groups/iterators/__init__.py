"""Iterators: the coordinator issues offset ranges to clients; partition leaders check the issued iterators."""
