"""The composition root: settings, wiring, start and stop. Nothing below knows that it exists."""
