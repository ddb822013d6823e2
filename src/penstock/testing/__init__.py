"""The public testing kit: simulated time, network, threads and disk, and a broker that runs in them from one seed."""
