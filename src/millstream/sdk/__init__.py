"""The Python client: a protocol core without I/O, connections over the network seam, and the client made of them."""
