"""Examines a stopped or a running broker for `millstream doctor`."""
