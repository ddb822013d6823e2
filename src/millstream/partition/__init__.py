"""The log as readers and writers see it: append, read, watermarks, epochs, idempotent producers, retention."""
