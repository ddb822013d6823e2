"""Reading from places that callers keep, and waiting there: all who wait for a partition share one subscription."""
