"""Reads with iterators: their requests, and the engine below the public class."""
