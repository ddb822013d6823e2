"""Reads at offsets that the caller keeps. All waiting reads of one partition share one push subscription."""
