"""Which brokers are asked first where nobody says so."""

BOOTSTRAP_VARIABLE = "MILLSTREAM_BOOTSTRAP"
"""Of the environment, for programs that let it say so."""
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
