"""Runs the `millstream serve` process: a broker, with a gateway and further local brokers as child processes."""
