"""The Python client: connections over the network seam, engines for producing and consuming, public classes."""
