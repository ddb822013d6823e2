"""Startup after a clean stop or a crash, and repair after a disk error."""
