"""Serves gRPC. The contract is proto/millstream_api/v1."""
