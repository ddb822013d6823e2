"""Local clusters: further brokers on this machine, started on request as children of one supervisor."""
