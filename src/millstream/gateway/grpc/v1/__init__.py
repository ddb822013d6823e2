"""The contract, as scripts/proto.py writes it for Python: change proto/, and run that."""
