"""`millstream dump`: prints and checks a log, over the wire or from a broker's files."""
