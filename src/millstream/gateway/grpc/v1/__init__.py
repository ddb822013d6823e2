"""The Python code that scripts/proto.py generates from proto/: change proto/ and run that script."""
