"""Tables and live views that several commands print."""
