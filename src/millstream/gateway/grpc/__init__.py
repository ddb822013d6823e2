"""The gRPC side of the gateway; its contract is proto/millstream_api/v1."""
