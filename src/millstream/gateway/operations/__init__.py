"""The operations that the web API and gRPC share, implemented with SDK clients."""
