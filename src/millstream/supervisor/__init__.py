"""`millstream serve`: a broker, plus the gateway and the brokers of further clusters as child processes."""
