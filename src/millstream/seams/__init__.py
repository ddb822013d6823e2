"""Clock, Disk, Network, Workers and Entropy: the protocols, and the implementations on a real machine."""
