"""Numbered writers: number Arrow rows per partition under a fixed name; a repeated write adds only missing rows."""
