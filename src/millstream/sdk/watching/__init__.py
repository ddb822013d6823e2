"""Reads at offsets that the caller tracks. All waiting reads of one partition share one push subscription."""
