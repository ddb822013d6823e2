"""Defines Java options for the Spark tests."""

# Options for short runs: optimisations for long runs only cost time here.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
