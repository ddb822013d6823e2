"""The operations that the web API and gRPC have in common, over SDK clients."""
