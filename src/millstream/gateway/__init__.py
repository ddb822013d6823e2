"""The gateway: serves the web API and gRPC in its own process, as a client of the brokers."""
