"""Prints and checks logs for `millstream dump`, over the wire or from a broker's files."""
