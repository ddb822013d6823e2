"""The gateway: everything over HTTP and gRPC, in a process of its own, with the SDK and nothing else."""
