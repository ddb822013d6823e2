"""The `millstream serve` process: runs a broker, and a gateway and further local brokers as child processes."""
