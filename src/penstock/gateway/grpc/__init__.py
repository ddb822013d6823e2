"""The gRPC side of the gateway; its contract is proto/penstock/v1."""
